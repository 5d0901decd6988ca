package socket

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// told is what a worker is told of these sockets, which it has from FirstFD up.
func told(dialects []Dialect, sockets ...Passed) []string {
	t := Told{Dialects: dialects, Sockets: sockets, Parent: 4711, Slot: 2, Generation: 9}
	return t.Environment()
}

// variable is the value of a variable; "<none>": it is not there.
func variable(environ []string, name string) string {
	for _, v := range environ {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return "<none>"
}

func TestEnvironmentIsWhatServerStarterWrites(t *testing.T) {
	for address, name := range map[string]string{
		":8080":               "8080",
		"0.0.0.0:8080":        "8080",
		"127.0.0.1:8080":      "127.0.0.1:8080",
		"[127.0.0.1]:8080":    "127.0.0.1:8080",
		"localhost:8080":      "localhost:8080",
		"[::1]:8080":          "[::1]:8080",
		"[::]:8080":           "[::]:8080",
		"udp:127.0.0.1:53":    "127.0.0.1:53",
		"udp::53":             "53",
		"unix:/run/web.sock":  "/run/web.sock",
		"unix:@abstract":      "@abstract",
		"unix:/run/../a b/cc": "/run/../a b/cc",
	} {
		got := variable(told([]Dialect{StartServer}, Passed{Name: "x", Address: address}), "SERVER_STARTER_PORT")
		if got != name+"=3" {
			t.Errorf("%q gives %q", address, got)
		}
	}
}

func TestEnvironmentNamesEverySocketInOrder(t *testing.T) {
	got := told([]Dialect{StartServer, Systemd}, Passed{Name: "http", Address: ":80"}, Passed{Name: "127.0.0.1:81", Address: "127.0.0.1:81"},
		Passed{Address: "unix:/x"})
	want := []string{"LISTEN_FDS=3", "LISTEN_FDNAMES=http:127.0.0.1-81:unknown", "SERVER_STARTER_PORT=80=3;127.0.0.1:81=4;/x=5", "SERVER_STARTER_GENERATION=9"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestEnvironmentWithoutSocketsIsPresentAndEmpty(t *testing.T) {
	if got := told(nil); !slices.Equal(got, []string{"SERVER_STARTER_PORT=", "SERVER_STARTER_GENERATION=9"}) {
		t.Errorf("got %q", got)
	}
}

func TestEnvironmentLeavesOutWhatItCannotExpress(t *testing.T) {
	got := told(nil, Passed{Name: "a", Address: "unix:/a;b=9"}, Passed{Name: "b:\n\xff", Address: ":80"})
	for name, want := range map[string]string{"SERVER_STARTER_PORT": "80=4", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b-__"} {
		if variable(got, name) != want {
			t.Errorf("got %q, want %s=%s", got, name, want)
		}
	}
}

func TestPlacesAreThoseAskedForAndTheLowestThatAreLeft(t *testing.T) {
	var none Place
	for _, c := range []struct {
		asked []Place
		want  []int
	}{
		{nil, []int{}},
		{[]Place{none, none}, []int{3, 4}},
		{[]Place{At(0), none, At(10), none}, []int{0, 3, 10, 4}},
		{[]Place{none, At(3), At(4), none}, []int{5, 3, 4, 6}},
	} {
		if got := Places(c.asked); !slices.Equal(got, c.want) {
			t.Errorf("%v gives %v, want %v", c.asked, got, c.want)
		}
	}
}

func TestEnvironmentTellsWhereASocketIsThatAskedForANumber(t *testing.T) {
	got := told([]Dialect{Systemd, StartServer, Nginx, Unicorn}, Passed{Name: "http", Address: "0.0.0.0:80"}, Passed{Name: "in", Address: ":81", FD: At(0)},
		Passed{Name: "far", Address: ":82", FD: At(9), Starter: "./s"}, Passed{Name: "b", Address: ":83"})
	want := []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=http:b", "SERVER_STARTER_PORT=80=3;81=0;./s=9;83=4", "SERVER_STARTER_GENERATION=9", "NGINX=3;0;9;4;", "UNICORN_FD=3,0,9,4"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestFDNameIsCutAt255(t *testing.T) {
	if n := len(FDName(strings.Repeat("x", 300))); n != 255 {
		t.Errorf("%d bytes", n)
	}
}

func FuzzEnvironmentRoundTrip(f *testing.F) {
	f.Add("http", "127.0.0.1:80", "", "unix:/run/a b")
	f.Add("a:b", "[::1]:80", "x;y", "udp::53")
	f.Add("=", "unix:@x", "\n", "unix:/a;b=3")
	f.Fuzz(func(t *testing.T, name1, address1, name2, address2 string) {
		passed := []Passed{{Name: name1, Address: address1}, {Name: name2, Address: address2}}
		environ := append(told(nil, passed...), "LISTEN_PID=7")
		for _, v := range environ {
			if strings.Count(v, "\n") > 0 {
				t.Fatalf("%q is corrupt", v)
			}
		}
		found, err := parseEnvironment(environ, 7)
		if err != nil || len(found) != 2 {
			t.Fatalf("%q: %v, %v", environ, found, err)
		}
		for i, p := range passed {
			starter := ""
			if w, err := parseAddress(p.Address); err == nil {
				starter = w.starterName()
			}
			want := Inherit{FD: FirstFD + i, Name: FDName(p.Name), Starter: starter}
			if found[i] != want {
				t.Errorf("%q: found %+v, want %+v", environ, found[i], want)
			}
		}
	})
}

func FuzzParseEnvironment(f *testing.F) {
	f.Add("1", "3", "a:b:c", "80=3;90=4", "")
	f.Add("1", "", "", "8080=0=4", "12")
	f.Add("x", "-1", ":", "=;=", "x")
	f.Add("1", "1073741825", "", "", "")
	f.Fuzz(func(t *testing.T, pid, fds, names, ports, pidfd string) {
		found, err := parseEnvironment([]string{"LISTEN_PID=" + pid, "LISTEN_FDS=" + fds, "LISTEN_FDNAMES=" + names,
			"SERVER_STARTER_PORT=" + ports, "LISTEN_PIDFDID=" + pidfd, "nonsense"}, 1)
		if err != nil {
			if found != nil {
				t.Error("an error and a result")
			}
			return
		}
		seen := make(map[int]bool)
		for _, i := range found {
			if i.FD < 0 || seen[i.FD] {
				t.Errorf("descriptor %s twice or not one: %+v", strconv.Itoa(i.FD), found)
			}
			seen[i.FD] = true
		}
	})
}

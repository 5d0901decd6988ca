package socket

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// some are sockets of every kind, bound as the kernel would say.
var some = []Passed{
	{Name: "http", Address: "127.0.0.1:0", Bound: "127.0.0.1:43210"},
	{Name: "all", Address: ":80", Bound: "[::]:80"},
	{Name: "v6", Address: "[fe80::1%lo]:81", Bound: "[fe80::1%lo]:81"},
	{Name: "path", Address: "unix:/run/web.sock", Bound: "/run/web.sock"},
	{Name: "abstract", Address: "unix:@web", Bound: "@web"},
	{Name: "dns", Address: "udp:127.0.0.1:53", Bound: "127.0.0.1:53"},
}

func TestEachDialectIsWrittenAsItsProgramReadsIt(t *testing.T) {
	for d, want := range map[Dialect][]string{
		Systemd:     {"LISTEN_FDS=6", "LISTEN_FDNAMES=http:all:v6:path:abstract:dns"},
		StartServer: {"SERVER_STARTER_PORT=127.0.0.1:0=3;80=4;[fe80::1%lo]:81=5;/run/web.sock=6;@web=7;127.0.0.1:53=8", "SERVER_STARTER_GENERATION=9"},
		Nginx:       {"NGINX=3;4;5;6;7;8;"},
		PHPFPM:      {"FPM_SOCKETS=127.0.0.1:43210=3,:::80=4,fe80::1:81=5,/run/web.sock=6"},
		Unicorn:     {"UNICORN_FD=3,4,5,6,7"},
		Gunicorn:    {"GUNICORN_FD=3,4,5,6,7", "GUNICORN_PID=4711"},
		Einhorn: {"EINHORN_FD_0=3", "EINHORN_FD_FAMILY_0=AF_INET", "EINHORN_FD_1=4", "EINHORN_FD_FAMILY_1=AF_INET6", "EINHORN_FD_2=5", "EINHORN_FD_FAMILY_2=AF_INET6",
			"EINHORN_FD_3=6", "EINHORN_FD_FAMILY_3=AF_UNIX", "EINHORN_FD_4=7", "EINHORN_FD_FAMILY_4=AF_UNIX", "EINHORN_FD_5=8", "EINHORN_FD_FAMILY_5=AF_INET",
			"EINHORN_FD_COUNT=6", "EINHORN_FDS=3 4 5 6 7 8", "EINHORN_MASTER_PID=4711", "EINHORN_CHILD_INDEX=2"},
	} {
		if got := told([]Dialect{d}, some...); !slices.Equal(got, want) {
			t.Errorf("%s is\n%q, want\n%q", d, got, want)
		}
	}
}

func TestByDefaultNothingIsSaidThatChangesAProgram(t *testing.T) {
	got := map[string]bool{}
	for _, v := range told(nil, some[0]) {
		name, _, _ := strings.Cut(v, "=")
		got[name] = true
	}
	want := []string{"EINHORN_FD_0", "EINHORN_FD_COUNT", "EINHORN_FD_FAMILY_0", "LISTEN_FDNAMES", "LISTEN_FDS", "SERVER_STARTER_GENERATION", "SERVER_STARTER_PORT"}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("got %q", names)
	}
}

func TestNoDialectIsNoVariable(t *testing.T) {
	if got := told([]Dialect{}, some...); got != nil {
		t.Errorf("got %q", got)
	}
}

func TestAnUpgradeDialectSaysNothingWithoutASocket(t *testing.T) {
	for _, d := range Dialects() {
		if got := told([]Dialect{d}); d.IsUpgrade() && got != nil {
			t.Errorf("%s: %q", d, got)
		}
		if got := told([]Dialect{d}, some[5]); d.IsUpgrade() && d != Nginx && got != nil {
			t.Errorf("%s of a udp socket: %q", d, got)
		}
	}
}

func TestReservedIsWhatTheSpokenDialectsWrite(t *testing.T) {
	for _, d := range Dialects() {
		for _, v := range told([]Dialect{d}, some...) {
			name, _, _ := strings.Cut(v, "=")
			if !Reserved([]Dialect{d}, name) {
				t.Errorf("%s is not reserved in %s", name, d)
			}
			if Reserved([]Dialect{}, name) {
				t.Errorf("%s is reserved where nothing is spoken", name)
			}
			if Reserved(nil, name) == d.IsUpgrade() {
				t.Errorf("%s is reserved by default: %v", name, Reserved(nil, name))
			}
		}
	}
	for _, name := range []string{"EINHORN_SOCK_PATH", "EINHORN_SOCK_FD", "LISTEN_PID"} {
		if !Reserved(nil, name) {
			t.Errorf("%s is not reserved", name)
		}
	}
	for _, name := range []string{"NGINX_HOME", "EINHORN", "PATH"} {
		if Reserved(Dialects(), name) {
			t.Errorf("%s is reserved", name)
		}
	}
	if !Reserved([]Dialect{PHPFPM}, "FPM_SOCKETS_1") {
		t.Error("FPM_SOCKETS_1, which php-fpm reads after FPM_SOCKETS, is not reserved")
	}
}

// What follows reads the variables back by the rules of the programs that they are for.

// readNginx: every number ends with ; or :, and what stands behind the last one is thrown away.
func readNginx(value string) (fds []int) {
	for {
		end := strings.IndexAny(value, ";:")
		if end < 0 {
			return fds
		}
		fd, err := strconv.Atoi(value[:end])
		if err != nil {
			return fds
		}
		fds, value = append(fds, fd), value[end+1:]
	}
}

// readFPM: pairs between commas, cut at the first =.
func readFPM(value string) map[string]int {
	found := map[string]int{}
	for pair := range strings.SplitSeq(value, ",") {
		if key, fd, ok := strings.Cut(pair, "="); ok {
			found[key], _ = strconv.Atoi(fd)
		}
	}
	return found
}

// readList: numbers between commas, as unicorn and gunicorn have them.
func readList(value string) (fds []int) {
	for word := range strings.SplitSeq(value, ",") {
		fd, err := strconv.Atoi(word)
		if err != nil {
			return nil
		}
		fds = append(fds, fd)
	}
	return fds
}

func FuzzDialectsRoundTrip(f *testing.F) {
	f.Add("a", "127.0.0.1:80", "127.0.0.1:80", "unix:/run/a b", "/run/a b")
	f.Add("", ":80", "[::]:80", "udp::53", "[::]:53")
	f.Add("=", "unix:/a,b", "/a,b", "[::ffff:1.2.3.4]:1", "[::ffff:1.2.3.4]:1")
	f.Fuzz(func(t *testing.T, name, address1, bound1, address2, bound2 string) {
		sockets := []Passed{{Name: name, Address: address1, Bound: bound1}, {Name: name, Address: address2, Bound: bound2}}
		environ := told(Dialects(), sockets...)
		if got := readNginx(variable(environ, "NGINX")); !slices.Equal(got, []int{3, 4}) {
			t.Errorf("%q: nginx reads %v", environ, got)
		}
		var streams []int
		fpm := readFPM(variable(environ, "FPM_SOCKETS"))
		for i, s := range sockets {
			if s.network() != "udp" {
				streams = append(streams, FirstFD+i)
			}
			key := s.fpmKey()
			if at, err := netip.ParseAddrPort(s.Bound); err == nil && s.network() == "tcp" && !strings.Contains(key, at.Addr().WithZone("").String()) {
				t.Errorf("%q is known to php-fpm as %q", s.Bound, key)
			}
			if key != "" && fpm[key] != FirstFD+i && (i > 0 || fpm[key] != FirstFD+1) { // two of one address: the later counts
				t.Errorf("%q: php-fpm reads %v", environ, fpm)
			}
		}
		for _, v := range []string{"UNICORN_FD", "GUNICORN_FD"} {
			if got := readList(variable(environ, v)); !slices.Equal(got, streams) {
				t.Errorf("%q: read from %s: %v, want %v", environ, v, got, streams)
			}
		}
	})
}

package dialect

import (
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
)

// told returns the variables for a worker that has these sockets from FirstFD up.
func told(dialects []Name, sockets ...Passed) []string {
	sockets = slices.Clone(sockets)
	next := inherit.FirstFD
	for i := range sockets {
		switch sockets[i].FD {
		case 0:
			sockets[i].FD = next
			next++
		case stdin:
			sockets[i].FD = 0
		}
	}
	return Message{Dialects: dialects, Sockets: sockets, Generation: 9}.Environment()
}

// stdin stands for the descriptor number 0 in told.
const stdin = -1

// addr parses a valid address.
func addr(s string) socket.Address {
	a, err := socket.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

// variable returns the value of a variable, or "<none>" if it is not set.
func variable(environ []string, name string) string {
	for _, v := range environ {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return "<none>"
}

func TestEnvironmentMatchesServerStarter(t *testing.T) {
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
		got := variable(told([]Name{StartServer}, Passed{Name: "x", Address: addr(address)}), "SERVER_STARTER_PORT")
		if got != name+"=3" {
			t.Errorf("%q gives %q", address, got)
		}
	}
}

func TestEnvironmentWithoutSocketsIsPresentAndEmpty(t *testing.T) {
	if got := told(nil); !slices.Equal(got, []string{"SERVER_STARTER_PORT=", "SERVER_STARTER_GENERATION=9"}) {
		t.Errorf("got %q", got)
	}
}

func TestNamesAreWrittenAsTheVariablesCanHoldThem(t *testing.T) {
	got := told(nil, Passed{Name: "b:\n\xff", Address: addr(":80")}, Passed{Address: addr("unix:/x")})
	for name, want := range map[string]string{"SERVER_STARTER_PORT": "80=3;/x=4", "LISTEN_FDS": "2",
		"LISTEN_FDNAMES": "b-__:unknown"} {
		if variable(got, name) != want {
			t.Errorf("got %q, want %s=%s", got, name, want)
		}
	}
}

func TestEnvironmentHasTheRequestedNumberOfASocket(t *testing.T) {
	got := told([]Name{Systemd, StartServer}, Passed{Name: "http", Address: addr("0.0.0.0:80")},
		Passed{Name: "in", Address: addr(":81"), FD: stdin},
		Passed{Name: "far", Address: addr(":82"), FD: 9, Starter: "./s"}, Passed{Name: "b", Address: addr(":83")})
	want := []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=http:b", "SERVER_STARTER_PORT=80=3;81=0;./s=9;83=4",
		"SERVER_STARTER_GENERATION=9"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

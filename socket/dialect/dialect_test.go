package dialect

import (
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
)

// some lists sockets of every kind.
var some = []Passed{
	{Name: "http", Address: addr("127.0.0.1:0")},
	{Name: "all", Address: addr(":80")},
	{Name: "v6", Address: addr("[fe80::1%lo]:81")},
	{Name: "path", Address: addr("unix:/run/web.sock")},
	{Name: "abstract", Address: addr("unix:@web")},
	{Name: "dns", Address: addr("udp:127.0.0.1:53")},
}

func TestEachDialectIsWrittenAsItsProgramReadsIt(t *testing.T) {
	systemd := []string{"LISTEN_FDS=6", "LISTEN_FDNAMES=http:all:v6:path:abstract:dns"}
	starter := []string{"SERVER_STARTER_PORT=127.0.0.1:0=3;80=4;[fe80::1%lo]:81=5;/run/web.sock=6;@web=7;127.0.0.1:53=8",
		"SERVER_STARTER_GENERATION=9"}
	for name, c := range map[string]struct {
		dialects []Name
		sockets  []Passed
		want     []string
	}{
		"systemd":      {[]Name{Systemd}, some, systemd},
		"start_server": {[]Name{StartServer}, some, starter},
		"the default":  {nil, some, slices.Concat(systemd, starter)},
		"all":          {All(), some, slices.Concat(systemd, starter)},
		"none":         {[]Name{}, some, nil},
		"no sockets":   {nil, nil, []string{"SERVER_STARTER_PORT=", "SERVER_STARTER_GENERATION=9"}},
		"what the variables cannot hold": {nil,
			[]Passed{{Name: "b:\n\xff", Address: addr(":80")}, {Address: addr("unix:/x")}},
			[]string{"LISTEN_FDS=2", "LISTEN_FDNAMES=b-__:unknown", "SERVER_STARTER_PORT=80=3;/x=4",
				"SERVER_STARTER_GENERATION=9"}},
		"requested numbers": {[]Name{Systemd, StartServer},
			[]Passed{{Name: "http", Address: addr("0.0.0.0:80")}, {Name: "in", Address: addr(":81"), FD: stdin},
				{Name: "far", Address: addr(":82"), FD: 9, Starter: "./s"}, {Name: "b", Address: addr(":83")}},
			[]string{"LISTEN_FDS=2", "LISTEN_FDNAMES=http:b", "SERVER_STARTER_PORT=80=3;81=0;./s=9;83=4",
				"SERVER_STARTER_GENERATION=9"}},
	} {
		if got := told(c.dialects, c.sockets...); !slices.Equal(got, c.want) {
			t.Errorf("%s: it is\n%q, want\n%q", name, got, c.want)
		}
	}
}

func TestReservedListsTheVariablesOfTheDialects(t *testing.T) {
	for _, v := range append(told(nil, some...), "LISTEN_PID=1") {
		if name, _, _ := strings.Cut(v, "="); !reserved.ForWorkers(name) {
			t.Errorf("%s is not reserved", name)
		}
	}
	for _, name := range []string{"NGINX", "FPM_SOCKETS", "PATH"} {
		if reserved.ForWorkers(name) {
			t.Errorf("%s is reserved", name)
		}
	}
}

func TestFDNumbersAreTheRequestedOnesAndTheLowestFreeOnes(t *testing.T) {
	var none socket.FDNumber
	for _, c := range []struct {
		asked []socket.FDNumber
		want  []int
	}{
		{nil, []int{}},
		{[]socket.FDNumber{none, none}, []int{3, 4}},
		{[]socket.FDNumber{socket.FixedFD(0), none, socket.FixedFD(10), none}, []int{0, 3, 10, 4}},
		{[]socket.FDNumber{none, socket.FixedFD(3), socket.FixedFD(4), none}, []int{5, 3, 4, 6}},
	} {
		listeners := make([]socket.Spec, len(c.asked))
		for i, fd := range c.asked {
			listeners[i].FD = fd
		}
		if got := FDNumbers(listeners); !slices.Equal(got, c.want) {
			t.Errorf("%v gives %v, want %v", c.asked, got, c.want)
		}
	}
}

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
		got := told([]Name{StartServer}, Passed{Name: "x", Address: addr(address)})[0]
		if got != "SERVER_STARTER_PORT="+name+"=3" {
			t.Errorf("%q gives %q", address, got)
		}
	}
}

package dialect

import (
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/socket"
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
	for d, want := range map[Name][]string{
		Systemd: {"LISTEN_FDS=6", "LISTEN_FDNAMES=http:all:v6:path:abstract:dns"},
		StartServer: {"SERVER_STARTER_PORT=127.0.0.1:0=3;80=4;[fe80::1%lo]:81=5;/run/web.sock=6;@web=7;127.0.0.1:53=8",
			"SERVER_STARTER_GENERATION=9"},
	} {
		if got := told([]Name{d}, some...); !slices.Equal(got, want) {
			t.Errorf("%s is\n%q, want\n%q", d, got, want)
		}
	}
}

func TestDefaultIsEveryDialect(t *testing.T) {
	if got, want := told(nil, some...), told(All(), some...); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEmptyDialectSetsNoVariable(t *testing.T) {
	if got := told([]Name{}, some...); got != nil {
		t.Errorf("got %q", got)
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

package socket

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// literal is a listener as far as it is known without a look-up.
func literal(t *testing.T, s Spec) Resolved {
	t.Helper()
	r, host, err := s.Literal()
	if err != nil || host != "" {
		t.Fatalf("%s: host %q, error %v", s.Address, host, err)
	}
	return r
}

func TestListenersOverlapInWhateverSpelling(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(filepath.Dir(dir), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	shared := func(address string) Spec { return Spec{Address: address, ReusePort: true} }
	on := func(device string) Spec { return Spec{Address: "127.0.0.1:80", Interface: device} }
	for _, c := range []struct {
		a, b    Spec
		overlap bool
	}{
		{Spec{Address: "127.0.0.1:80"}, Spec{Address: "127.0.0.1:080"}, true},
		{Spec{Address: "127.0.0.1:80"}, Spec{Address: "LocalHost:80"}, true},
		{Spec{Address: "127.0.0.1:80"}, Spec{Address: "[::ffff:127.0.0.1]:80"}, true},
		{Spec{Address: "[::1]:80"}, Spec{Address: "[0:0:0:0:0:0:0:1]:80"}, true},
		{Spec{Address: "127.0.0.1:80"}, Spec{Address: "0.0.0.0:80"}, true},
		{Spec{Address: "127.0.0.1:80"}, Spec{Address: ":80"}, true},
		{Spec{Address: "0.0.0.0:80"}, Spec{Address: ":80"}, true},
		{Spec{Address: "[::1]:80"}, Spec{Address: "[::]:80"}, true},
		{Spec{Address: ":80"}, Spec{Address: ":80", IPv6Only: "true"}, true},
		{Spec{Address: "udp::53"}, Spec{Address: "udp:127.0.0.1:53"}, true},
		{shared("127.0.0.1:80"), shared("127.0.0.1:80"), true},
		{Spec{Address: "127.0.0.1:80"}, shared("0.0.0.0:80"), true},
		{on("lo"), on("lo"), true},
		{on("lo"), on(""), true},
		{Spec{Address: "unix:" + dir + "/s"}, Spec{Address: "unix:" + dir + "//x/../s"}, true},
		{Spec{Address: "unix:" + dir + "/s"}, Spec{Address: "unix:" + link + "/s"}, true},
		{Spec{Address: "unix:@x"}, Spec{Address: "unix:@x"}, true},

		{Spec{Address: "127.0.0.1:80"}, Spec{Address: "127.0.0.1:81"}, false},
		{Spec{Address: "127.0.0.1:80"}, Spec{Address: "127.0.0.2:80"}, false},
		{Spec{Address: "127.0.0.1:80"}, Spec{Address: "udp:127.0.0.1:80"}, false},
		{Spec{Address: "127.0.0.1:0"}, Spec{Address: "127.0.0.1:0"}, false},
		{Spec{Address: "127.0.0.1:80"}, Spec{Address: "[::1]:80"}, false},
		{Spec{Address: "127.0.0.1:80"}, Spec{Address: "[::]:80"}, false},
		{Spec{Address: "0.0.0.0:80"}, Spec{Address: ":80", IPv6Only: "true"}, false},
		{shared("127.0.0.1:80"), shared("0.0.0.0:80"), false},
		{on("lo"), on("eth0"), false},
		{Spec{Address: "unix:@x"}, Spec{Address: "unix:@y"}, false},
	} {
		a, b := literal(t, c.a), literal(t, c.b)
		if a.Overlaps(b) != c.overlap || b.Overlaps(a) != c.overlap {
			t.Errorf("%+v and %+v: overlap is %v", c.a, c.b, !c.overlap)
		}
	}
}

func TestLiteralLeavesAHostAlone(t *testing.T) {
	if _, host, err := (Spec{Address: "Web.Example:80"}).Literal(); host != "web.example" || err != nil {
		t.Errorf("host %q, error %v", host, err)
	}
	if _, _, err := (Spec{Address: "nonsense"}).Literal(); err == nil {
		t.Error("it was accepted")
	}
}

func TestPortsThatTheKernelChoosesAreToldApartByProgram(t *testing.T) {
	table := newTable(t)
	a := want(t, Spec{Program: "a", Name: "http", Address: "127.0.0.1:0"})
	b := want(t, Spec{Program: "b", Name: "http", Address: "127.0.0.1:0"})
	apply(t, table, a, b)
	if table.Address(a.Key()) == table.Address(b.Key()) {
		t.Error("both have one socket")
	}
}

func TestSocketsOfAVersionThatDidNotKnowProgramsComeBack(t *testing.T) {
	before := want(t, Spec{Name: "http", Address: "127.0.0.1:0"})
	slots := want(t, Spec{Name: "slots", Address: "127.0.0.1:0", PerSlot: true})
	slots.Slots = 2
	table := newTable(t)
	offers := orphaned(t, before, slots)
	table.Offer(offers)
	now, nowSlots := before, slots
	now.Program, nowSlots.Program = "web", "web"
	apply(t, table, now, nowSlots)
	if table.Address(now.Key()) != offers[0].Address || len(table.Leftover()) != 0 {
		t.Errorf("it is at %s, not %s", table.Address(now.Key()), offers[0].Address)
	}
	claims := Renamed([]string{before.Key(), slots.Key() + claimMark + "2", "tcp 127.0.0.1:1"}, []Resolved{now.Resolved, nowSlots.Resolved})
	if want := []string{now.Key() + "\t1", nowSlots.Key() + "\t2", "tcp 127.0.0.1:1\t1"}; !slices.Equal(claims, want) {
		t.Errorf("claims are %q", claims)
	}
}

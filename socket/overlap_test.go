package socket

import (
	"os"
	"path/filepath"
	"testing"
)

// literal returns a listener as far as it is known without a DNS lookup.
func literal(t *testing.T, s Spec) Resolved {
	t.Helper()
	r := s.Literal()
	if r.at.needsLookUp() {
		t.Fatalf("%s needs a look-up", s.Address)
	}
	return r
}

func TestListenersOverlapInAnySpelling(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(filepath.Dir(dir), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	shared := func(address string) Spec { return Spec{Address: addr(address), ReusePort: true} }
	on := func(device string) Spec { return Spec{Address: addr("127.0.0.1:80"), Interface: device} }
	for _, c := range []struct {
		a, b    Spec
		overlap bool
	}{
		{Spec{Address: addr("127.0.0.1:80")}, Spec{Address: addr("127.0.0.1:080")}, true},
		{Spec{Address: addr("127.0.0.1:80")}, Spec{Address: addr("LocalHost:80")}, true},
		{Spec{Address: addr("127.0.0.1:80")}, Spec{Address: addr("[::ffff:127.0.0.1]:80")}, true},
		{Spec{Address: addr("[::1]:80")}, Spec{Address: addr("[0:0:0:0:0:0:0:1]:80")}, true},
		{Spec{Address: addr("127.0.0.1:80")}, Spec{Address: addr("0.0.0.0:80")}, true},
		{Spec{Address: addr("127.0.0.1:80")}, Spec{Address: addr(":80")}, true},
		{Spec{Address: addr("0.0.0.0:80")}, Spec{Address: addr(":80")}, true},
		{Spec{Address: addr("[::1]:80")}, Spec{Address: addr("[::]:80")}, true},
		{Spec{Address: addr(":80")}, Spec{Address: addr(":80"), IPv6Only: "true"}, true},
		{Spec{Address: addr("udp::53")}, Spec{Address: addr("udp:127.0.0.1:53")}, true},
		{shared("127.0.0.1:80"), shared("127.0.0.1:80"), true},
		{Spec{Address: addr("127.0.0.1:80")}, shared("0.0.0.0:80"), true},
		{on("lo"), on("lo"), true},
		{on("lo"), on(""), true},
		{Spec{Address: addr("unix:" + dir + "/s")}, Spec{Address: addr("unix:" + dir + "//x/../s")}, true},
		{Spec{Address: addr("unix:" + dir + "/s")}, Spec{Address: addr("unix:" + link + "/s")}, true},
		{Spec{Address: addr("unix:@x")}, Spec{Address: addr("unix:@x")}, true},

		{Spec{Address: addr("127.0.0.1:80")}, Spec{Address: addr("127.0.0.1:81")}, false},
		{Spec{Address: addr("127.0.0.1:80")}, Spec{Address: addr("127.0.0.2:80")}, false},
		{Spec{Address: addr("127.0.0.1:80")}, Spec{Address: addr("udp:127.0.0.1:80")}, false},
		{Spec{Address: addr("127.0.0.1:0")}, Spec{Address: addr("127.0.0.1:0")}, false},
		{Spec{Address: addr("127.0.0.1:80")}, Spec{Address: addr("[::1]:80")}, false},
		{Spec{Address: addr("127.0.0.1:80")}, Spec{Address: addr("[::]:80")}, false},
		{Spec{Address: addr("0.0.0.0:80")}, Spec{Address: addr(":80"), IPv6Only: "true"}, false},
		{shared("127.0.0.1:80"), shared("0.0.0.0:80"), false},
		{on("lo"), on("eth0"), false},
		{Spec{Address: addr("unix:@x")}, Spec{Address: addr("unix:@y")}, false},
	} {
		a, b := literal(t, c.a), literal(t, c.b)
		if a.Overlaps(b) != c.overlap || b.Overlaps(a) != c.overlap {
			t.Errorf("%+v and %+v: overlap is %v", c.a, c.b, !c.overlap)
		}
	}
}

func TestHostThatIsNotLookedUpOverlapsItself(t *testing.T) {
	a, b := Spec{Address: addr("Web.Example:80")}.Literal(), Spec{Address: addr("web.example:80")}.Literal()
	if !a.Overlaps(b) || a.Overlaps(Spec{Address: addr("127.0.0.1:80")}.Literal()) {
		t.Error("want an overlap with the same host, and none with an address")
	}
}

func TestPortsChosenByTheKernelAreDistinguishedByProgram(t *testing.T) {
	table := newTable(t)
	a := want(t, Spec{Program: "a", Name: "http", Address: addr("127.0.0.1:0")})
	b := want(t, Spec{Program: "b", Name: "http", Address: addr("127.0.0.1:0")})
	apply(t, table, a, b)
	if table.Address(a.Key()) == table.Address(b.Key()) {
		t.Error("both have one socket")
	}
}

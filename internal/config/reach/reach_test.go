package reach

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"example.org/supervisord/socket"
)

// reached reports whether a URL reaches a listener, with a resolver of three names.
func reached(t *testing.T, url, listener string) bool {
	t.Helper()
	r, cancel := NewFinder()
	defer cancel()
	r.lookUp = func(_ context.Context, _, name string) ([]netip.Addr, error) {
		switch name {
		case "web.internal":
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		case "slot0.internal":
			return []netip.Addr{netip.MustParseAddr("fd00::9"), netip.MustParseAddr("::ffff:127.0.0.2")}, nil
		case "far.internal":
			return []netip.Addr{netip.MustParseAddr("203.0.113.1")}, nil
		}
		return nil, errors.New("no such host")
	}
	return r.reaches(URL(url), addr(listener))
}

func TestProbeReachesListenerHoweverItIsWritten(t *testing.T) {
	for _, c := range []struct{ url, listener string }{
		{"http://127.0.0.1:8080/", "127.0.0.1:8080"},
		{"https://127.0.0.1:8080", "127.0.0.1:8080"},
		{"http://user:p@127.0.0.1:8080/x@y", "127.0.0.1:8080"},
		{"http://0.0.0.0:8080/", "127.0.0.1:8080"},
		{"http://[::]:8080/", "[::1]:8080"},
		{"http://:8080/", "127.0.0.1:8080"},
		{"http://localhost:8080/", "127.0.0.1:8080"},
		{"http://LocalHost.:8080/", "[::1]:8080"},
		{"http://api.localhost:8080/", ":8080"},
		{"http://127.0.0.1:8080/", "localhost:8080"},
		{"http://127.0.0.1:8080/", ":8080"},
		{"http://127.0.0.1:8080/", "0.0.0.0:8080"},
		{"http://127.0.0.1:8080/", "[::]:8080"},
		{"http://127.0.0.2:8080/", "0.0.0.0:8080"},
		{"http://[::1]:8080/", ":8080"},
		{"http://[::ffff:127.0.0.1]:8080/", "127.0.0.1:8080"},
		{"http://127.0.0.1:8080/", "[::ffff:127.0.0.1]:8080"},
		{"http://[fe80::1%25lo]:8080/", "[fe80::1%lo]:8080"},
		{"http://[0:0::1]:8080/", "[::1]:8080"},
		{"http://127.0.0.1:08080/", "127.0.0.1:8080"},
		{"http://127.0.0.1:8080/", "127.0.0.1:08080"},
		{"http://127.0.0.1/", "127.0.0.1:80"},
		{"https://127.0.0.1/", "127.0.0.1:443"},
		{"http://[::1]/", "[::1]:80"},
		{"http://127.0.0.1:?x=1", "127.0.0.1:80"},
		{"http://web.internal:8080/", "127.0.0.1:8080"},
		{"http://web.internal:8080/", ":8080"},
		{"http://127.0.0.1:8080/", "web.internal:8080"},
		{"http://unknown.internal:8080/", "Unknown.Internal.:8080"},
		{"http://slot{slot}.internal:8080/", "127.0.0.2:8080"},
		{"http://127.0.0.1:808{slot}/", "127.0.0.1:8087"},
		{"http://127.0.0.1:808{slot}/", "127.0.0.1:8080"},
		{"http://127.0.0.1:8{generation}/", "127.0.0.1:8123"},
		{"http://127.0.0.1:{pid}/", "127.0.0.1:8080"},
		{"http://127.0.0.1:{slot}8080/", "127.0.0.1:8080"}, // slot 0
		{"http://127.0.0.{slot}:8080/", "127.0.0.7:8080"},
		{"http://127.0.0.{slot}:8080/", ":8080"},
		{"unix:/run/web.sock:/health", "unix:/run/web.sock"},
		{"unix:/run//x/../web.sock:/health", "unix:/run/web.sock"},
		{"unix:/run/web{slot}.sock:/health", "unix:/run/web3.sock"},
		{"unix:@web:/health", "unix:@web"},
	} {
		if !reached(t, c.url, c.listener) {
			t.Errorf("%s reaches %s, but was not found to", c.url, c.listener)
		}
	}
}

func TestProbeOfASeparateAddressReachesNoListener(t *testing.T) {
	for _, c := range []struct{ url, listener string }{
		{"http://127.0.0.1:8081/", "127.0.0.1:8080"},
		{"http://127.0.0.2:8080/", "127.0.0.1:8080"},
		{"http://127.0.0.1:8080/", "[::1]:8080"},
		{"http://203.0.113.1:8080/", ":8080"},
		{"http://far.internal:8080/", ":8080"},
		{"http://unknown.internal:8080/", ":8080"},
		{"http://127.0.0.1:8080/", "udp:127.0.0.1:8080"},
		{"http://127.0.0.1:8080/", "127.0.0.1:0"},
		{"http://127.0.0.1:8080/", "unix:/run/web.sock"},
		{"http://127.0.0.1:900{slot}/", "127.0.0.1:8080"},
		{"http://127.0.0.1:808{slot}1/", "127.0.0.1:8080"},
		{"http://127.0.0.1:{generation}80/", "127.0.0.1:80"},
		{"unix:/run/web.sock:/health", "unix:/run/other.sock"},
		{"unix:/run/web.sock:/health", "unix:@/run/web.sock"},
		{"unix:/run/{pid}.sock:/health", "unix:/run/web.sock"},
		{"unix:/run/web.sock:/", "127.0.0.1:80"},
	} {
		if reached(t, c.url, c.listener) {
			t.Errorf("%s does not reach %s, but was found to", c.url, c.listener)
		}
	}
}

func TestProbeOfThisMachinesAddressReachesListenerOnEveryAddress(t *testing.T) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Skip(err)
	}
	for _, a := range addresses {
		ip := netip.MustParsePrefix(a.String()).Addr()
		if url := "http://" + netip.AddrPortFrom(ip, 8080).String() + "/"; !reached(t, url, ":8080") {
			t.Errorf("%s was not found to reach :8080", url)
		}
	}
}

func TestProbeReachesUnixSocketThroughSymlinks(t *testing.T) {
	dir := t.TempDir()
	inside := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(inside("run"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "run", "dangling": "run/web.sock", "twice": "dangling", "circle": "circle"} {
		if err := os.Symlink(to, inside(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"link/web.sock", "dangling", "twice", "link/../run/web.sock"} {
		if !reached(t, "unix:"+inside(path)+":/", "unix:"+inside("run/web.sock")) {
			t.Errorf("%s was not found to lead to run/web.sock", path)
		}
	}
	if !reached(t, "unix:"+inside("link/{pid}.sock")+":/", "unix:"+inside("run/17.sock")) {
		t.Error("link/{pid}.sock was not found to lead to run/17.sock")
	}
	if reached(t, "unix:"+inside("circle")+":/", "unix:"+inside("run/web.sock")) {
		t.Error("a circle of symlinks was found to lead to run/web.sock")
	}
	l, err := net.Listen("unix", inside("run/hard.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Link(inside("run/hard.sock"), inside("other")); err != nil {
		t.Fatal(err)
	}
	if !reached(t, "unix:"+inside("other")+":/", "unix:"+inside("run/hard.sock")) {
		t.Error("a hard link was not found to lead to its socket")
	}
}

// addr parses a valid address.
func addr(s string) socket.Address {
	a, err := socket.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

package config

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/worker/ready"
)

// reached reports whether a URL reaches a listener, with a resolver of three names.
func reached(t *testing.T, url, listener string) bool {
	t.Helper()
	r, cancel := newReach()
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
	return r.reaches(urlTarget(url), addr(listener))
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

// shared returns a program with a listener and a probe.
func shared(name, listen, table string) string {
	text := "[program." + name + "]\ncommand = [\"true\"]\n"
	if listen != "" {
		text += "[[program." + name + ".listen]]\nname = \"http\"\naddress = \"" + listen + "\"\n"
	}
	return text + "[program." + name + "." + table + "\n"
}

func TestProbeAtASharedListenerIsRefused(t *testing.T) {
	const own = `such as "unix:/run/web/{pid}.sock"`
	for name, c := range map[string]struct{ text, want string }{
		"ready http": {shared("web", "127.0.0.1:8080", "ready]\nmethod = \"http\"\nurl = \"http://localhost:8080/\""),
			`c.toml:8: program.web.ready.url: reaches the listener "http" at 127.0.0.1:8080, which all generations of web share: an old worker would answer for a new one: write method = "notify" or "accept", or let each worker answer at an address of its own, ` + own},
		"ready tcp": {shared("web", "0.0.0.0:8080", "ready]\nmethod = \"tcp\"\naddress = \"127.0.0.1:8080\""),
			`c.toml:8: program.web.ready.address: reaches the listener "http" at 0.0.0.0:8080, which all generations of web share: an old worker would answer for a new one: write method = "notify" or "accept", or let each worker answer at an address of its own, ` + own},
		"health": {shared("web", ":8080", "health]\nmethod = \"http\"\nurl = \"http://127.0.0.1:8080/\""),
			`c.toml:8: program.web.health.url: reaches the listener "http" at :8080, which all workers of web share: a healthy one would answer for one that hangs: let the workers send WATCHDOG=1 and write watchdog = "30s", or let each worker answer at an address of its own, ` + own},
		"another program's": {shared("web", "", "ready]\nmethod = \"tcp\"\naddress = \"127.0.0.1:8081\"") + shared("api", "127.0.0.1:8081", "ready]\nmethod = \"notify\""),
			`c.toml:5: program.web.ready.address: reaches the listener "http" of program api at 127.0.0.1:8081: its workers would answer, and no worker of web: write method = "notify" or "accept", or let each worker answer at an address of its own, ` + own},
		"one for each slot": {"[program.web]\ncommand = [\"true\"]\n[[program.web.listen]]\nname = \"http\"\naddress = \":80\"\nper_slot = true\n[program.web.ready]\nmethod = \"http\"\nurl = \"http://127.0.0.1/\"\n",
			`c.toml:9: program.web.ready.url: reaches the listener "http" at :80, which all generations of web share: an old worker would answer for a new one: write method = "notify" or "accept", or let each worker answer at an address of its own, ` + own},
		"supervisord's own page": {"[supervisor]\nhttp = \"127.0.0.1:9001\"\n" + shared("web", "", "ready]\nmethod = \"http\"\nurl = \"http://127.0.0.1:900{slot}/readyz\""),
			`c.toml:7: program.web.ready.url: reaches supervisord itself at 127.0.0.1:9001, and no worker: write method = "notify" or "accept", or let each worker answer at an address of its own, ` + own},
	} {
		t.Run(name, func(t *testing.T) {
			if got := messages(t, map[string]string{"c.toml": c.text}); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestProbeInAnIncludedFileIsComparedWithListenersOfAll(t *testing.T) {
	got := messages(t, map[string]string{
		"c.toml":    "[supervisor]\ninclude = [\"more.toml\"]\n" + shared("a", "127.0.0.1:8080", "ready]\nmethod = \"notify\""),
		"more.toml": shared("b", "", "ready]\nmethod = \"tcp\"\naddress = \"127.0.0.1:8080\""),
	})
	if !strings.HasPrefix(got, `more.toml:5: program.b.ready.address: reaches the listener "http" of program a`) {
		t.Errorf("got %s", got)
	}
}

func TestNameThatCannotBeLookedUpIsAWarning(t *testing.T) {
	c := load(t, shared("web", ":8080", "ready]\nmethod = \"http\"\nurl = \"http://no-such-host-{pid}.invalid:8080/\""))
	if len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0].What, "cannot look up no-such-host-1.invalid") {
		t.Errorf("warnings are %v", c.Warnings)
	}
}

func TestProbeOfAnAddressThatGenerationsShareIsAWarning(t *testing.T) {
	for _, c := range []struct {
		workers  int
		reload   string
		url      string
		expected bool
	}{
		{1, "all", "http://127.0.0.1:9000/", true},
		{1, "all", "http://127.0.0.1:910{slot}/", true},
		{1, "rolling", "http://127.0.0.1:910{slot}/", true},
		{1, "all", "http://127.0.0.1:9000/{pid}", false},
		{1, "all", "http://127.0.0.1:9000/{generation}", false},
		{2, "all", "http://127.0.0.1:9000/{generation}", true},
		{2, "all", "http://127.0.0.1:9000/{generation}/{slot}", false},
		{1, "stop-first", "http://127.0.0.1:9000/", false},
		{2, "stop-first", "http://127.0.0.1:9000/", true},
		{2, "stop-first", "http://127.0.0.1:910{slot}/", false},
	} {
		loaded := load(t, fmt.Sprintf("[program.web]\ncommand = [\"true\"]\nworkers = %d\nreload.strategy = %q\nready = { method = \"http\", url = %q }\n", c.workers, c.reload, c.url))
		warned := len(loaded.Warnings) == 1 && strings.HasPrefix(loaded.Warnings[0].What, "is the address of several workers")
		if warned != c.expected {
			t.Errorf("%+v: warnings are %v", c, loaded.Warnings)
		}
	}
}

func TestURLOfAListenerInAProbeCommandIsAWarning(t *testing.T) {
	for command, expected := range map[string]bool{
		`["true", "curl -f 'http://localhost:8080/health' || exit 1"]`: true,
		`["true", "http://127.0.0.1:8080"]`:                            true,
		`["true", "http://127.0.0.1:9000/", "8080"]`:                   false,
	} {
		loaded := load(t, shared("web", "127.0.0.1:8080", "ready]\nmethod = \"exec\"\ncommand = "+command))
		warned := len(loaded.Warnings) == 1 && strings.Contains(loaded.Warnings[0].What, `reaches the listener "http" of program web`)
		if warned != expected {
			t.Errorf("%s: warnings are %v", command, loaded.Warnings)
		}
	}
}

func TestProbeOfAListenerThatIsOpenIsRefused(t *testing.T) {
	c := &Config{Programs: []Program{{Name: "web", File: "/c.toml", Line: 3, Ready: Ready{Check: ready.Check{Method: ready.TCP, Address: "127.0.0.1:43210"}}}}}
	err := c.CheckProbes([]Endpoint{{"web", "http", addr("127.0.0.1:43210")}})
	if err == nil || !strings.HasPrefix(err.Error(), `/c.toml:3: program.web.ready.address: reaches the listener "http" at 127.0.0.1:43210`) {
		t.Errorf("got %v", err)
	}
	if err := c.CheckProbes([]Endpoint{{"web", "http", addr("127.0.0.1:43211")}, {"web", "u", addr("unix:/run/web.sock")}}); err != nil {
		t.Error(err)
	}
}

package config

import (
	"fmt"
	"strings"
	"testing"

	"example.org/supervisord/internal/config/reach"
	"example.org/supervisord/worker/ready"
)

// shared returns a program with a listener and a probe.
func shared(name, listen, table string) string {
	text := "[program." + name + "]\ncommand = [\"true\"]\n"
	if listen != "" {
		text += "[[program." + name + ".listen]]\nname = \"http\"\nhandover = \"share\"\naddress = \"" + listen + "\"\n"
	}
	return text + "[program." + name + "." + table + "\n"
}

func TestProbeAtASharedListenerIsRefused(t *testing.T) {
	const own = `such as "unix:/run/web/{pid}.sock"`
	for name, c := range map[string]struct{ text, want string }{
		"ready http": {shared("web", "127.0.0.1:8080", "ready]\nmethod = \"http\"\nurl = \"http://localhost:8080/\""),
			`c.toml:9: program.web.ready.url: reaches the listener "http" at 127.0.0.1:8080, which all generations of web ` +
				`share: an old worker would answer for a new one: write method = "notify" or "accept", or let each worker ` +
				`answer at an address of its own, ` + own},
		"ready tcp": {shared("web", "0.0.0.0:8080", "ready]\nmethod = \"tcp\"\naddress = \"127.0.0.1:8080\""),
			`c.toml:9: program.web.ready.address: reaches the listener "http" at 0.0.0.0:8080, which all generations of web ` +
				`share: an old worker would answer for a new one: write method = "notify" or "accept", or let each worker ` +
				`answer at an address of its own, ` + own},
		"health": {shared("web", ":8080", "health]\nmethod = \"http\"\nurl = \"http://127.0.0.1:8080/\""),
			`c.toml:9: program.web.health.url: reaches the listener "http" at :8080, which all workers of web share: a ` +
				`healthy one would answer for one that hangs: let the workers send WATCHDOG=1 and write watchdog = "30s", or ` +
				`let each worker answer at an address of its own, ` + own},
		"another program's": {shared("web", "", "ready]\nmethod = \"tcp\"\naddress = \"127.0.0.1:8081\"") +
			shared("api", "127.0.0.1:8081", "ready]\nmethod = \"notify\""),
			`c.toml:5: program.web.ready.address: reaches the listener "http" of program api at 127.0.0.1:8081: its workers ` +
				`would answer, and no worker of web: write method = "notify" or "accept", or let each worker answer at an ` +
				`address of its own, ` + own},
		"supervisord's own page": {"[supervisor]\nhttp = \"127.0.0.1:9001\"\n" +
			shared("web", "", "ready]\nmethod = \"http\"\nurl = \"http://127.0.0.1:900{slot}/readyz\""),
			`c.toml:7: program.web.ready.url: reaches supervisord itself at 127.0.0.1:9001, and no worker: write method = ` +
				`"notify" or "accept", or let each worker answer at an address of its own, ` + own},
	} {
		t.Run(name, func(t *testing.T) {
			if got := messages(t, map[string]string{"c.toml": c.text}); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestProbeAtASteeredListenerIsToldHowToReachItsGeneration(t *testing.T) {
	const ready, health = `where the generation that serves answers: it would answer for the one on trial: write `,
		`where any worker of the generation that serves answers: write `
	for name, c := range map[string]struct{ text, want string }{
		"ready http": {"[program.web.ready]\nmethod = \"http\"\nurl = \"http://localhost:8080/up?{pid}\"",
			`ready.url: reaches the listener "http" at 0.0.0.0:8080, ` + ready + `url = "http://{listener:http}/up?{pid}"`},
		"ready tcp": {"[program.web.ready]\nmethod = \"tcp\"\naddress = \"127.0.0.1:8080\"",
			`ready.address: reaches the listener "http" at 0.0.0.0:8080, ` + ready + `address = "{listener:http}"`},
		"health": {"[program.web.health]\nmethod = \"http\"\nurl = \"http://127.0.0.1:8081/up\"",
			`health.url: reaches the listener "local" at 127.0.0.1:8081, ` + health + `url = "http://{listener:local}/up"`},
	} {
		t.Run(name, func(t *testing.T) {
			text := "[program.web]\ncommand = [\"true\"]\n" +
				"listen = [{ name = \"http\", address = \"0.0.0.0:8080\", per_slot = true }, { name = \"local\", address = " +
				"\"127.0.0.1:8081\" }]\n" + c.text
			if got, want := messages(t, map[string]string{"c.toml": text}), "c.toml:6: program.web."+c.want+
				" to reach the worker's own generation"; got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestProbeInAnIncludedFileIsComparedWithListenersOfAll(t *testing.T) {
	got := messages(t, map[string]string{
		"c.toml": "[supervisor]\ninclude = [\"more.toml\"]\n" +
			shared("a", "127.0.0.1:8080", "ready]\nmethod = \"notify\""),
		"more.toml": shared("b", "", "ready]\nmethod = \"tcp\"\naddress = \"127.0.0.1:8080\""),
	})
	if !strings.HasPrefix(got, `more.toml:5: program.b.ready.address: reaches the listener "http" of program a`) {
		t.Errorf("got %s", got)
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
		loaded := load(t, fmt.Sprintf(
			"[program.web]\ncommand = [\"true\"]\nworkers = %d\nreload.strategy = %q\nready = { method = \"http\", url = %q }\n",
			c.workers, c.reload, c.url))
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
		warned := len(loaded.Warnings) == 1 &&
			strings.Contains(loaded.Warnings[0].What, `reaches the listener "http" of program web`)
		if warned != expected {
			t.Errorf("%s: warnings are %v", command, loaded.Warnings)
		}
	}
}

func TestProbeOfAListenerThatIsOpenIsRefused(t *testing.T) {
	c := &Config{Programs: []Program{{Name: "web", File: "/c.toml", Line: 3,
		Ready: Ready{Check: ready.Check{Method: ready.TCP, Address: "127.0.0.1:43210"}}}}}
	err := c.CheckProbes([]reach.Endpoint{{Program: "web", Name: "http", Address: addr("127.0.0.1:43210")}})
	if err == nil || !strings.HasPrefix(withoutColumns(err),
		`/c.toml:3: program.web.ready.address: reaches the listener "http" at 127.0.0.1:43210`) {
		t.Errorf("got %v", err)
	}
	if err := c.CheckProbes([]reach.Endpoint{{Program: "web", Name: "http", Address: addr("127.0.0.1:43211")},
		{Program: "web", Name: "u", Address: addr("unix:/run/web.sock")}}); err != nil {
		t.Error(err)
	}
}

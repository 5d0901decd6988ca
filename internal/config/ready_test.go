package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config/reach"
	"example.org/supervisord/worker/output"
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

func TestProbesMayGoToUnixSockets(t *testing.T) {
	const url, address = "unix:/run/web.{slot}.sock:/health", "unix:/run/web.{slot}.{generation}.sock"
	p := load(t, web+"[program.web.ready]\nmethod = \"http\"\nurl = \""+url+
		"\"\n[program.web.health]\nmethod = \"tcp\"\naddress = \""+address+"\"").Programs[0]
	if p.Ready.URL != url || p.Health.Address != address {
		t.Errorf("they are read as %q and %q", p.Ready.URL, p.Health.Address)
	}
}

const probed = "[program.web]\ncommand = [\"true\"]\n[program.web.ready]\nmethod = \"http\"\n" +
	"url = \"http://127.0.0.1:9000/\"\n"

func TestStatusesOfAProbe(t *testing.T) {
	for text, want := range map[string][]ready.StatusRange{
		`204`: {{First: 204, Last: 204}}, `"200-399"`: nil, `"200-299"`: {{First: 200, Last: 299}},
		`[200, "300-308", "404"]`: {{First: 200, Last: 200}, {First: 300, Last: 308}, {First: 404, Last: 404}},
	} {
		if got := load(t, probed+"status = "+text+"\n").Programs[0].Ready.Status; !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %v", text, got)
		}
	}
	for _, text := range []string{`99`, `600`, `"2xx"`, `"399-200"`, `true`, `[200, "x"]`, `""`, `{}`} {
		if wrong := messages(t, map[string]string{"c.toml": probed + "status = " + text + "\n"}); !strings.Contains(wrong,
			"neither a status of HTTP") {
			t.Errorf("%s: %q", text, wrong)
		}
	}
}

func TestHeadersOfAProbe(t *testing.T) {
	want := map[string]string{"Host": "www.example.com", "X-A": "b"}
	got := load(t, probed+"headers = { Host = \"www.example.com\", X-A = \"b\" }\n").Programs[0].Ready.Headers
	if !reflect.DeepEqual(got, want) {
		t.Errorf("they are read as %v", got)
	}
	for _, text := range []string{`"Host: x"`, `{ "a b" = "x" }`, `{ Host = 1 }`, `{ Host = "a\r\nb" }`} {
		if wrong := messages(t, map[string]string{"c.toml": probed + "headers = " + text + "\n"}); !strings.Contains(wrong,
			"ready.headers") {
			t.Errorf("%s: %q", text, wrong)
		}
	}
}

func TestHealthLogAndLimitsArrive(t *testing.T) {
	c := load(t, web+`stdout = "capture"
[program.web.limits]
max_memory = "512MiB"
max_age = "24h"
nofile = 100
[program.web.health]
method = "http"
url = "http://127.0.0.1:900{slot}/healthz"
timeout = "1s"
watchdog = "30s"
[program.web.log]
file = "web.log"
max_files = 3
`)
	p := c.Programs[0]
	health := Health{
		Check:   ready.Check{Method: ready.HTTP, URL: "http://127.0.0.1:900{slot}/healthz", Interval: 10 * time.Second},
		Timeout: time.Second, Failures: 3, Watchdog: 30 * time.Second,
	}
	if !reflect.DeepEqual(p.Health, health) {
		t.Errorf("health is %+v", p.Health)
	}
	log := LogPolicy{File: filepath.Join(filepath.Dir(p.File), "web.log"), MaxSize: 100 << 20, MaxFiles: 3}
	if p.Log != log {
		t.Errorf("log is %+v", p.Log)
	}
	if p.MaxMemory != 512<<20 || p.MaxAge != 24*time.Hour || p.Limits.RLimits["nofile"] != 100 {
		t.Errorf("limits are %d, %s, %v", p.MaxMemory, p.MaxAge, p.Limits)
	}
	if !p.Captures() || p.Stdout.Kind != output.Capture || p.Stderr.Kind != output.Inherit {
		t.Errorf("streams are %v and %v", p.Stdout, p.Stderr)
	}
}

func TestWatchdogMayStandAlone(t *testing.T) {
	c := load(t, web+"[program.web.health]\nwatchdog = \"30s\"\n")
	if want := (Health{Watchdog: 30 * time.Second}); !reflect.DeepEqual(c.Programs[0].Health, want) {
		t.Errorf("health is %+v", c.Programs[0].Health)
	}
}

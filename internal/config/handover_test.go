package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/socket"
	"example.org/supervisord/worker/ready"
)

const (
	rollingWhy = `with strategy "rolling" old and new workers serve side by side, and without per_slot they have one ` +
		`socket`
	stopWhy  = `with strategy "stop-first" one generation ends before the next one begins`
	reuseWhy = "reuse_port lets other processes have sockets of the same address"
	unixWhy  = "the kernel cannot steer the connections of a unix socket"
)

func TestListenersAreSteeredUnlessThereIsAReason(t *testing.T) {
	for _, c := range []struct{ program, listener, why string }{
		{"", `address = "127.0.0.1:80"`, ""},
		{"", `address = ":80", per_slot = true, nonblock = true, socket = { defer_accept = "1s", fast_open = 5, ` +
			`keep_alive = "1s" }, fd = 7`, ""},
		{"", `address = "unix:/run/web.sock", mode = "0600"`, unixWhy},
		{"", `address = "udp::53"`, ""},
		{"", `address = "udp::53", fd = 0`, ""},
		{"", `address = "unix:@web"`, unixWhy},
		{"", `address = ":80", fd = 0`, ""},
		{"", `address = ":80", socket.reuse_port = true`, reuseWhy},
		{`reload.strategy = "rolling"`, `address = ":80"`, rollingWhy},
		{`reload.strategy = "rolling"`, `address = ":80", per_slot = true`, ""},
		{`reload.strategy = "stop-first"`, `address = ":80"`, stopWhy},
	} {
		t.Run(c.program+" "+c.listener, func(t *testing.T) {
			text := minimal + c.program + "\nlisten = [{ " + c.listener + " }]\n"
			config := load(t, text)
			got := config.Programs[0].Listen[0]
			want := socket.Steer
			if c.why != "" {
				want = socket.Share
			}
			if got.Handover != want || got.HandoverWhy != c.why {
				t.Errorf("it is %s, because %q, want %s, because %q", got.Handover, got.HandoverWhy, want, c.why)
			}
			if notes := config.Shared(); len(notes) > 0 != (c.why != "") ||
				len(notes) > 0 && !strings.Contains(withoutColumns(notes[0]),
					"c.toml:4: note: program.web.listen[0].handover: the generations share the listener ") {
				t.Errorf("notes are %v", notes)
			}
			explicit := load(t, minimal+c.program+"\nlisten = [{ handover = \"share\", "+
				strings.Replace(c.listener, "per_slot = true", "per_slot = false", 1)+" }]\n")
			if l := explicit.Programs[0].Listen[0]; l.Handover != socket.Share || l.HandoverWhy != "" ||
				len(explicit.Shared()) > 0 {
				t.Errorf("asked for, it is %s, because %q", l.Handover, l.HandoverWhy)
			}
		})
	}
}

func TestHandoversOfDatagramsArrive(t *testing.T) {
	for text, want := range map[string]socket.Handover{
		steering(`{ address = "udp::1", handover = "quic" }`, ""): socket.QUIC,
		steering(`{ address = "udp::1", handover = "quic" }, { address = "udp::2" }`,
			"reload.max_draining = 200"): socket.QUIC,
		steering(`{ address = "udp::80", flows = 4096, handover = "flow" }`, ""): socket.Flow,
	} {
		l := load(t, text).Programs[0].Listen[0]
		if l.Handover != want || !l.IsSteered() || want == socket.Flow && l.Flows != 4096 {
			t.Errorf("%s: it is %+v", text, l)
		}
	}
}

func TestFlowsOfManyWorkersAreWarnedOf(t *testing.T) {
	const flows = `{ address = "udp::80", handover = "flow" }`
	for workers, want := range map[string]string{
		"workers = 1": "",
		"workers = 3": "c.toml:3: warning: program.web.listen[0].handover: the 3 workers of a generation receive from one " +
			"socket, so each may get datagrams of any client: write workers = 1, or make 3 programs",
	} {
		got := ""
		config := load(t, strings.Replace(steering(flows, workers), `"./web"`, `"sleep", "1"`, 1))
		for _, w := range config.Warnings {
			got += strings.TrimPrefix(withoutColumns(w), filepath.Dir(config.Files[0])+"/")
		}
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// steering is a program with these listeners and tables.
func steering(listeners, tables string) string {
	return minimal + "listen = [" + listeners + "]\n" + tables
}

const (
	http   = `{ name = "http", address = ":80" }`
	shares = `{ name = "http", address = ":80", handover = "share" }`
	udp    = `{ name = "dns", address = "udp::53" }`
	path   = `{ name = "unix", address = "unix:@web" }`
)

func TestDrainAndKeepArrive(t *testing.T) {
	p := load(t, steering(http, `drain = { timeout = "1m", silence = "2s", spread = "3s" }
reload.keep = "5m"`)).Programs[0]
	if want := (DrainPolicy{time.Minute, 2 * time.Second, 3 * time.Second}); p.Drain != want ||
		p.Reload.Keep != 5*time.Minute {
		t.Errorf("they are %+v and %s", p.Drain, p.Reload.Keep)
	}
	for _, listeners := range []string{http, path + ", " + http, shares, udp, ""} {
		got := load(t, steering(listeners, "")).Programs[0].Drain
		if got != (DrainPolicy{Timeout: 30 * time.Second, Silence: 5 * time.Second}) {
			t.Errorf("%s: the default is %+v", listeners, got)
		}
	}
	got := load(t, steering(http, `drain.timeout = "0s"`)).Programs[0].Drain
	if got != (DrainPolicy{Silence: 5 * time.Second}) {
		t.Errorf("with a timeout of 0s it is %+v", got)
	}
	load(t, steering(`{ name = "http", address = ":80", per_slot = true }`,
		"reload = { strategy = \"rolling\", keep = \"1m\" }"))
}

func TestDrainOfASharedListenerIsAWarning(t *testing.T) {
	for _, c := range []struct{ listeners, tables, want string }{
		{shares, `drain.timeout = "0s"`, `"http" (handover = "share"): remove the table, or write handover = "steer"`},
		{`{ name = "web", address = "unix:/run/web.sock" }`, `drain.timeout = "5s"`,
			`"web" (` + unixWhy + `): remove the table, or listen on a loopback port`},
	} {
		warnings := load(t, steering(c.listeners, c.tables)).Warnings
		if want := "program.web.drain: does nothing: the generations share the listener " + c.want; len(warnings) == 0 ||
			!strings.HasSuffix(warnings[len(warnings)-1].String(), want) {
			t.Errorf("got %v, want %s", warnings, want)
		}
	}
}

func TestProbesMayNameASteeredListener(t *testing.T) {
	p := load(t, steering(http+`, { address = "unix:/run/web.sock" }`,
		"ready = { method = \"http\", url = \"https://{listener:http}/up?{slot}\" }\n"+
			"health = { method = \"tcp\", address = \"{listener:http}\" }")).Programs[0]
	if p.Ready.URL != "https://{listener:http}/up?{slot}" || p.Ready.Listener != "http" {
		t.Errorf("ready is %+v", p.Ready)
	}
	if p.Health.Address != "{listener:http}" || p.Health.Listener != "http" {
		t.Errorf("health is %+v", p.Health)
	}
}

// warnings returns those about one key, each as "KEY: what: remedy".
func warnings(c *Config, key string) (list []string) {
	for _, w := range c.Warnings {
		if strings.Contains(w.Key, key) {
			list = append(list, strings.TrimPrefix(withoutColumns(w), filepath.Dir(c.Files[0])+"/"))
		}
	}
	return list
}

func TestHealthOfOneOfSeveralWorkersAtTheirListenerIsAWarning(t *testing.T) {
	const check = `health = { method = "http", url = "http://{listener:http}/" }`
	want := []string{`c.toml:4: warning: program.web.health.url: any of the 2 workers of a generation answers at the ` +
		`listener "http", and a healthy one answers for one that hangs: ` +
		`write per_slot = true for the listener, or let the workers send WATCHDOG=1 and write watchdog = "30s"`}
	if got := warnings(load(t, steering(http, check+"\nworkers = 2")), "health"); !slices.Equal(got, want) {
		t.Errorf("warnings are %q", got)
	}
	for _, text := range []string{
		steering(http, check), steering(`{ name = "http", address = ":80", per_slot = true }`, check+"\nworkers = 2"),
		steering(http, strings.Replace(check, "health", "ready", 1)+"\nworkers = 2"),
	} {
		if got := warnings(load(t, text), "web."+"health"); len(got) > 0 {
			t.Errorf("warnings are %q", got)
		}
	}
}

func TestReadinessIsAcceptWithListenersAndDelayWithout(t *testing.T) {
	for text, want := range map[string]ready.Check{
		steering(http, ""): {Method: ready.Accept, Fallback: time.Second},
		steering(udp, ""):  {Method: ready.Accept, Fallback: time.Second},
		steering("", ""):   {Method: ready.Delay, Delay: time.Second},
		steering(http, "[program.web.ready]\ntimeout = \"9s\""):    {Method: ready.Accept, Fallback: time.Second},
		steering(http, "[program.web.ready]\ndelay = \"2s\""):      {Method: ready.Delay, Delay: 2 * time.Second},
		steering(http, "[program.web.ready]\nmethod = \"accept\""): {Method: ready.Accept},
		steering(http, "[program.web.ready]\nmethod = \"delay\""):  {Method: ready.Delay, Delay: time.Second},
	} {
		c := load(t, text)
		if got := c.Programs[0].Ready.Check; !reflect.DeepEqual(got, want) || len(warnings(c, "ready")) > 0 {
			t.Errorf("%s: %+v, want %+v; warnings %q", text, got, want, warnings(c, "ready"))
		}
	}
}

const crowd = "workers = 33\n"

func TestPerSlotIsAutoUnlessTheListenerCannotHaveIt(t *testing.T) {
	for _, c := range []struct{ program, listener, slotting, why string }{
		{"", `address = ":80"`, "auto", ""},
		{crowd, `address = ":80"`, "auto", ""},
		{crowd, `address = ":80", per_slot = "auto"`, "auto", ""},
		{crowd, `address = ":80", per_slot = true`, "true", ""},
		{crowd, `address = ":80", per_slot = false`, "false", ""},
		{crowd + `reload.strategy = "rolling"`, `address = ":80"`, "auto", ""},
		{crowd + `reload.strategy = "stop-first"`, `address = ":80"`, "auto", stopWhy},
		{"workers = 32", `address = "udp::53"`, "auto", ""},
		{crowd, `address = "udp::53"`, "auto", "a generation has one socket of udp"},
		{crowd, `address = "unix:/run/web.sock"`, "auto", "a unix socket has one queue"},
		{crowd, `address = ":80", socket.reuse_port = true`, "auto", reuseWhy},
		{crowd, `address = ":80", fd = 0`, "auto", ""},
		{crowd, `address = ":80", handover = "share"`, "auto", `handover = "share"`},
		{crowd + `restart.when = "never"`, `address = ":80"`, "auto",
			`with restart.when = "never" a socket could be left without a worker`},
		{crowd + "restart.when = \"on-failure\"\nreload.strategy = \"rolling\"", `address = ":80"`, "auto",
			`with restart.when = "on-failure" a socket could be left without a worker`},
	} {
		t.Run(c.program+" "+c.listener, func(t *testing.T) {
			config := load(t, minimal+c.program+"\nlisten = [{ "+c.listener+" }]\n")
			p := &config.Programs[0]
			why, _ := p.Generations().WhyOneSocket(p.Listen[0])
			if got := p.Listen[0].Slotting(); got != c.slotting || why != c.why {
				t.Errorf("it is %s, one socket because %q, want %s because %q", got, why, c.slotting, c.why)
			}
			if p.Listen[0].Single != (c.slotting == "false" ||
				isSteered(p.Listen[0]) && c.why != "" && p.Listen[0].Address.IsTCP()) {
				t.Errorf("it is %+v", p.Listen[0])
			}
			notes := config.Crowded()
			if len(notes) > 0 != (c.why != "") ||
				len(notes) > 0 && !strings.Contains(notes[0].String(), ".listen[0].per_slot: the listener ") {
				t.Errorf("notes are %v", notes)
			}
		})
	}
}

func TestRollingProgramOfManyWorkersIsSteered(t *testing.T) {
	for workers, want := range map[int]socket.Handover{32: socket.Share, 33: socket.Steer} {
		text := fmt.Sprintf("%sworkers = %d\nreload.strategy = \"rolling\"\nlisten = [{ address = \":80\" }]\n", minimal,
			workers)
		if got := load(t, text).Programs[0].Listen[0]; got.Handover != want {
			t.Errorf("%d workers: it is %s, because %q", workers, got.Handover, got.HandoverWhy)
		}
	}
}

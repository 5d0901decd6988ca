package starter

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
)

// options parses a command line of flags and ./web in a directory of the test.
func options(t *testing.T, flags ...string) *Arguments {
	t.Helper()
	line := must.Get(Parse(append(flags, "--", "./web")))(t)
	return &Arguments{Given: line.Given, Command: line.Command, WorkDir: t.TempDir(),
		Getenv: func(string) string { return "" }}
}

// add adds an option.
func (o *Arguments) add(name, value string) {
	o.Given = append(o.Given, getopt.Given{Flag: getopt.Flag{Name: name}, As: "--" + name, Value: value})
}

// setenv sets variables in the environment of start_server.
func (o *Arguments) setenv(env ...string) {
	o.Getenv = func(name string) string {
		for _, kv := range env {
			if k, v, _ := strings.Cut(kv, "="); k == name {
				return v
			}
		}
		return ""
	}
}

// loaded returns the program that o describes.
func loaded(t *testing.T, o *Arguments) config.Program {
	t.Helper()
	c := must.Get(o.Load())(t)
	return c.Programs[0]
}

func TestPortsHaveTheNamesOfTheReference(t *testing.T) {
	o := options(t, "--backlog=7", "--path=./web.sock", "--path=/run/web.sock")
	for _, p := range []string{"8080", "127.0.0.1:8081", "[::1]:8082", "[127.0.0.1]:8083", "u53", "localhost:u54",
		"8084=0", " 8085 =10 ", "0.0.0.0:8086", "08087"} {
		o.add("port", p)
	}
	var got [][3]string
	for _, l := range loaded(t, o).Listen {
		fd := ""
		if l.FD.Fixed {
			fd = strconv.Itoa(l.FD.Number)
		}
		told := dialect.Message{Dialects: []dialect.Name{dialect.StartServer},
			Sockets: []dialect.Passed{{Address: l.Address, Starter: l.StarterName}}}
		name, _, _ := strings.Cut(strings.TrimPrefix(told.Environment()[0], "SERVER_STARTER_PORT="), "=")
		got = append(got, [3]string{l.Address.String(), name, fd})
		if l.Address.IsUDP() == (l.Backlog == 7) {
			t.Errorf("the backlog of %s is %d", l.Address, l.Backlog)
		}
		if l.Address.String() == "unix:/run/web.sock" && l.Mode != 0o777 {
			t.Errorf("its mode is %o", l.Mode)
		}
	}
	want := [][3]string{
		{"0.0.0.0:8080", "8080", ""}, {"127.0.0.1:8081", "127.0.0.1:8081", ""}, {"[::1]:8082", "[::1]:8082",
			""}, {"127.0.0.1:8083", "127.0.0.1:8083", ""},
		{"udp:0.0.0.0:53", "53", ""}, {"udp:localhost:54", "localhost:54", ""}, {"0.0.0.0:8084", "8084",
			"0"}, {"0.0.0.0:8085", "8085", "10"},
		{"0.0.0.0:8086", "0.0.0.0:8086", ""}, {"0.0.0.0:8087", "08087", ""},
		{"unix:" + filepath.Join(o.WorkDir, "web.sock"), "./web.sock", ""}, {"unix:/run/web.sock", "/run/web.sock", ""},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v, want\n%v", got, want)
	}
}

func TestOptionsWinOverTheEnvironmentAndEnvdirOverBoth(t *testing.T) {
	o := options(t)
	o.setenv("KILL_OLD_DELAY=7", "ENABLE_AUTO_RESTART=1", "AUTO_RESTART_INTERVAL=100")
	if p := loaded(t, o); p.Reload.Soak != 7*time.Second || p.Reload.Every != 100*time.Second {
		t.Errorf("by the environment reload is %+v", p.Reload)
	}
	o.add("kill-old-delay", "3")
	o.add("envdir", "env")
	if p := loaded(t, o); p.Reload.Soak != 3*time.Second || p.Environment[killOldDelay] != "3" ||
		len(p.EnvironmentFiles) > 0 {
		t.Errorf("by an option it is %+v, and the worker has %v", p.Reload, p.Environment)
	}
	must.Do(t, os.Mkdir(filepath.Join(o.WorkDir, "env"), 0o755))
	for name, value := range map[string]string{killOldDelay: "2\n", enableAutoRestart: "0\n"} {
		must.Do(t, os.WriteFile(filepath.Join(o.WorkDir, "env", name), []byte(value), 0o644))
	}
	if p := loaded(t, o); p.Reload.Soak != 2*time.Second || p.Reload.Every != 0 ||
		!slices.Equal(p.EnvironmentFiles, []string{filepath.Join(o.WorkDir, "env")}) {
		t.Errorf("by envdir it is %+v", p.Reload)
	}
}

func TestAutoRestartKeepsOldWorkersForFiveSeconds(t *testing.T) {
	if p := loaded(t, options(t, "--enable-auto-restart")); p.Reload.Every != 6*time.Minute ||
		p.Reload.Soak != 5*time.Second {
		t.Errorf("reload is %+v", p.Reload)
	}
}

func TestMistakesNameTheOption(t *testing.T) {
	for want, flags := range map[string][]string{
		"--signal-on-hup=NOPE: \"NOPE\" is":           {"--signal-on-hup=NOPE"},
		"--port=70000: the port of":                   {"--port=70000"},
		"--port=80=2: fd 2 cannot be a listener's":    {"--port=80=2"},
		"--port=web: invalid ``port'' value:web":      {"--port=web"},
		"--port=:80: invalid ``port'' value::80":      {"--port=:80"},
		"--port=[::1]:80: ":                           {"--port=[::1]:80", "--port=[::1]:80"},
		"--backlog=-1: ":                              {"--port=80", "--backlog=-1"},
		"--path=a;b: SERVER_STARTER_PORT cannot hold": {"--path=a;b"},
		"--ready=soon: ":                              {"--ready=soon"},
		"--ready=http: http needs a value":            {"--ready=http"},
		"--ready=notify=now: notify takes no value":   {"--ready=notify=now"},
		"--ready=tcp=localhost:80: reaches the listener": {"--port=127.0.0.1:80",
			"--ready=tcp=localhost:80"},
		"--stop-timeout=1x: ":                                {"--stop-timeout=1x"},
		"--set=reload.sok=1: unknown key: did you mean soak": {"--set=reload.sok=1"},
		"--set=command=1: ":                                  {"--set=command=1"},
		"--set=x: not a KEY=VALUE":                           {"--set=x"},
		"--handover=both: not known: write --handover=share or --handover=steer": {"--port=80", "--handover=both"},
		"--handover=steer: does nothing without --port":                          {"--handover=steer"},
		`--handover=steer: "steer" is impossible: with strategy "stop-first"`: {"--port=80", "--handover=steer",
			`--set=reload.strategy="stop-first"`},
		`--set=reload.keep="1m": needs sockets of its own for each generation: they share the listener "0.0.0.0:80" ` +
			`(handover = "share"): remove it, or write --handover=steer`: {
			"--port=80", `--set=reload.keep="1m"`},
	} {
		if _, err := options(t, flags...).Load(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestMistakesOutsideOptionsAreRejected(t *testing.T) {
	o := options(t)
	o.setenv("KILL_OLD_DELAY=soon")
	if _, err := o.Load(); err == nil ||
		!strings.Contains(err.Error(), "KILL_OLD_DELAY=soon: must be a number of seconds") {
		t.Errorf("got %v", err)
	}
	o.Command = nil
	if _, err := o.Load(); !errors.Is(err, ErrNoCommand) {
		t.Errorf("got %v", err)
	}
}

func TestSetPassesKeysOnAndTheCommandStaysVerbatim(t *testing.T) {
	o := options(t, `--set=reload.preflight = ["./web", "-t"]`, `--set=ready.timeout="9s"`,
		`--set=hooks.after_reload=["true"]`,
		"--ready=http=http://127.0.0.1:9/", "--stop-timeout=30")
	o.Command = []string{"./w\xff", "{fd:x}", "{slot}", ""}
	p := loaded(t, o)
	if len(p.Reload.Preflight) != 2 || p.Ready.Timeout != 9*time.Second || p.Ready.URL != "http://127.0.0.1:9/" ||
		p.Stop.Steps[0].Wait != 30*time.Second {
		t.Errorf("the program is %+v", p)
	}
	if !slices.Equal(p.Command, o.Command) {
		t.Errorf("the command is %q", p.Command)
	}
}

func TestGenerationsShareASocketUnlessHandoverSaysSteer(t *testing.T) {
	ports := []string{"--port=8080", "--port=u53", "--port=8084=0", "--path=app.sock"}
	for want, flags := range map[socket.Handover][]string{socket.Share: ports,
		socket.Steer: append([]string{"--handover=steer"}, ports...)} {
		for _, l := range loaded(t, options(t, flags...)).Listen {
			switch {
			case l.Address.IsUnix() && l.Handover != socket.Share:
				t.Errorf("%v: the path is %s", flags, l.Handover)
			case l.Address.IsUnix():
			case l.Handover != want || l.HandoverWhy != "":
				t.Errorf("%v: %s is %s (%s), want %s", flags, l.Name, l.Handover, l.HandoverWhy, want)
			}
		}
	}
	if _, err := options(t, "--path=app.sock", "--handover=steer").Load(); err == nil ||
		!strings.Contains(err.Error(), "--handover=steer") {
		t.Errorf("a path alone is steered: %v", err)
	}
	if p := loaded(t, options(t, "--port=80", "--handover=share")); p.Listen[0].Handover != socket.Share ||
		p.Drain != (config.DrainPolicy{Timeout: 30 * time.Second, Silence: 5 * time.Second}) {
		t.Errorf("it is %s, and %+v", p.Listen[0].Handover, p.Drain)
	}
}

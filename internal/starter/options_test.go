package starter

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/config"
)

// options is a command line without flags, run in a folder of the test's.
func options(t *testing.T, env ...string) *Options {
	vars := map[string]string{}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	return &Options{Interval: 1, Command: []string{"./web"}, WorkDir: t.TempDir(), Getenv: func(name string) string { return vars[name] }}
}

// loaded is the program that o asks for.
func loaded(t *testing.T, o *Options) config.Program {
	t.Helper()
	c, err := o.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c.Programs[0]
}

func TestPortsAreNamedAsTheReferenceNamesThem(t *testing.T) {
	o := options(t)
	o.Port = []string{"8080", "127.0.0.1:8081", "[::1]:8082", "[127.0.0.1]:8083", "u53", "localhost:u54", "8084=0", " 8085 =10 ", "0.0.0.0:8086"}
	o.Path = []string{"./web.sock", "/run/web.sock"}
	o.Backlog = 7
	var got [][3]string
	for _, l := range loaded(t, o).Listen {
		fd := ""
		if l.FD.Fixed {
			fd = strconv.Itoa(l.FD.Number)
		}
		got = append(got, [3]string{l.Address, l.StarterName, fd})
		if udp := strings.HasPrefix(l.Address, "udp:"); udp == (l.Backlog == 7) {
			t.Errorf("the backlog of %s is %d", l.Address, l.Backlog)
		}
		if l.Address == "unix:/run/web.sock" && l.Mode != 0o777 {
			t.Errorf("its mode is %o", l.Mode)
		}
	}
	want := [][3]string{
		{"0.0.0.0:8080", "8080", ""}, {"127.0.0.1:8081", "127.0.0.1:8081", ""}, {"[::1]:8082", "[::1]:8082", ""}, {"127.0.0.1:8083", "127.0.0.1:8083", ""},
		{"udp:0.0.0.0:53", "53", ""}, {"udp:localhost:54", "localhost:54", ""}, {"0.0.0.0:8084", "8084", "0"}, {"0.0.0.0:8085", "8085", "10"},
		{"0.0.0.0:8086", "0.0.0.0:8086", ""}, {"unix:" + filepath.Join(o.WorkDir, "web.sock"), "./web.sock", ""}, {"unix:/run/web.sock", "/run/web.sock", ""},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v, want\n%v", got, want)
	}
}

func TestTheDefaultsAreThoseOfTheReference(t *testing.T) {
	p := loaded(t, options(t))
	if p.Ready.Method != "delay" || p.Ready.Delay != time.Second || p.Reload.Soak != 0 || p.Reload.Every != 0 || p.Reload.Retry != time.Second {
		t.Errorf("ready is %+v, reload %+v", p.Ready, p.Reload)
	}
	if s := p.Stop; s.Steps[0] != (config.StopStep{Signal: syscall.SIGTERM, Wait: config.Forever}) || s.MaxDraining != 0 || s.Group {
		t.Errorf("stop is %+v", s)
	}
	if !p.Limits.IgnoreSIGPIPE || p.Restart.Generation != config.New || p.Command[0] != "./web" {
		t.Errorf("the program is %+v", p)
	}
}

func TestFlagsWinOverTheEnvironmentAndEnvdirWinsOverBoth(t *testing.T) {
	o := options(t, "KILL_OLD_DELAY=7", "ENABLE_AUTO_RESTART=1", "AUTO_RESTART_INTERVAL=100")
	if p := loaded(t, o); p.Reload.Soak != 7*time.Second || p.Reload.Every != 100*time.Second {
		t.Errorf("by the environment reload is %+v", p.Reload)
	}
	o.KillOldDelay, o.KillOldDelayGiven, o.EnvDir = 3, true, "env"
	if p := loaded(t, o); p.Reload.Soak != 3*time.Second || p.Environment[killOldDelay] != "3" || p.EnvironmentDir != "" {
		t.Errorf("by a flag it is %+v, and the worker has %v", p.Reload, p.Environment)
	}
	if err := os.Mkdir(filepath.Join(o.WorkDir, "env"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{killOldDelay: "2\n", enableAutoRestart: "0\n"} {
		if err := os.WriteFile(filepath.Join(o.WorkDir, "env", name), []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if p := loaded(t, o); p.Reload.Soak != 2*time.Second || p.Reload.Every != 0 || p.EnvironmentDir != filepath.Join(o.WorkDir, "env") {
		t.Errorf("by envdir it is %+v", p.Reload)
	}
}

func TestOldWorkersWaitFiveSecondsWhereWorkersAreRestartedByThemselves(t *testing.T) {
	o := options(t)
	o.EnableAutoRestart = true
	if p := loaded(t, o); p.Reload.Every != 6*time.Minute || p.Reload.Soak != 5*time.Second {
		t.Errorf("reload is %+v", p.Reload)
	}
}

func TestWhatIsWrongIsSaidOfTheFlag(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--signal-on-hup=NOPE: \"NOPE\" is no signal":        func(o *Options) { o.SignalOnHUP = "NOPE" },
		"--port=70000: the port of":                          func(o *Options) { o.Port = []string{"70000"} },
		"--port=80=2: fd 2 cannot be a listener's":           func(o *Options) { o.Port = []string{"80=2"} },
		"invalid ``port'' value:web":                         func(o *Options) { o.Port = []string{"web"} },
		"invalid ``port'' value::80":                         func(o *Options) { o.Port = []string{":80"} },
		"--port=[::1]:80: ":                                  func(o *Options) { o.Port = []string{"[::1]:80", "[::1]:80"} },
		"--path=a;b: the path cannot travel":                 func(o *Options) { o.Path = []string{"a;b"} },
		"--ready=soon: ":                                     func(o *Options) { o.Ready = "soon" },
		"--ready=http: write such as":                        func(o *Options) { o.Ready = "http" },
		"--ready=notify=now: notify takes nothing":           func(o *Options) { o.Ready = "notify=now" },
		"--ready=tcp=localhost:80: reaches the listener":     func(o *Options) { o.Port, o.Ready = []string{"127.0.0.1:80"}, "tcp=localhost:80" },
		"--stop-timeout=1x: ":                                func(o *Options) { o.StopTimeout = "1x" },
		"--set=reload.sok=1: unknown key: did you mean soak": func(o *Options) { o.Set = []string{"reload.sok=1"} },
		"--set=command=1: ":                                  func(o *Options) { o.Set = []string{"command=1"} },
		"--set=x: write KEY=VALUE":                           func(o *Options) { o.Set = []string{"x"} },
		"KILL_OLD_DELAY=soon is no number of seconds":        func(o *Options) { o.Getenv = options(t, "KILL_OLD_DELAY=soon").Getenv },
		"server program not specified":                       func(o *Options) { o.Command = nil },
	} {
		o := options(t)
		change(o)
		if _, err := o.Load(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestOtherKeysAreSetWordForWord(t *testing.T) {
	o := options(t)
	o.Set = []string{`reload.preflight = ["./web", "-t"]`, `ready.timeout="9s"`, `hooks.after_reload=["true"]`}
	o.Ready, o.StopTimeout = "http=http://127.0.0.1:9/", "30s"
	o.Command = []string{"./w\xff", "{fd:x}", "{slot}", ""}
	p := loaded(t, o)
	if len(p.Reload.Preflight) != 2 || p.Ready.Timeout != 9*time.Second || p.Ready.URL != "http://127.0.0.1:9/" || p.Stop.Steps[0].Wait != 30*time.Second {
		t.Errorf("the program is %+v", p)
	}
	if !reflect.DeepEqual(p.Command, o.Command) {
		t.Errorf("the command is %q", p.Command)
	}
}

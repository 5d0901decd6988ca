package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

// FuzzLoad: Load returns for any text; an accepted configuration is usable, and an error has a position.
func FuzzLoad(f *testing.F) {
	for _, archive := range problemFiles(f) {
		f.Add(string(archive.Files[0].Data))
	}
	example, err := os.ReadFile("../../config.toml.example")
	if err == nil {
		f.Add(string(example))
		f.Add(uncomment(string(example)))
	}
	intuition, _ := filepath.Glob("testdata/intuition/*.toml")
	for _, path := range intuition {
		if text, err := os.ReadFile(path); err == nil {
			f.Add(string(text))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "c.toml")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		c, err := Load(path)
		var refused *document.Error
		switch {
		case err == nil:
			for _, p := range c.Programs {
				checkProgram(t, p)
			}
			if len(c.Programs) == 0 && len(c.Supervisor.Include) == 0 {
				t.Error("accepted without a program")
			}
		case !errors.As(err, &refused) || len(refused.Problems) == 0:
			t.Errorf("refused with %T", err)
		}
	})
}

// checkProgram checks the properties that the supervisor relies on.
func checkProgram(t *testing.T, p Program) {
	names := map[string]bool{}
	for _, l := range p.Listen {
		if err := l.Check(); len(err) > 0 || l.Name == "" || names[l.Name] {
			t.Errorf("listener %+v: %v", l, err)
		}
		names[l.Name] = true
		if l.Handover != socket.Share && (!l.IsSteered() || l.HandoverWhy != "") {
			t.Errorf("listener %+v", l)
		}
	}
	steered := slices.ContainsFunc(p.Listen, socket.Spec.IsSteered)
	steers := func(name string) bool {
		return slices.ContainsFunc(p.Listen, func(l socket.Spec) bool { return l.Name == name && l.IsSteered() })
	}
	if p.Drain.Timeout <= 0 && p.Drain.Spread > 0 ||
		len(p.Listen) == 0 && p.Drain != (DrainPolicy{Timeout: 30 * time.Second, Silence: 5 * time.Second}) ||
		p.Reload.Keep > 0 && !steered {
		t.Errorf("accepted %+v, %+v for %+v", p.Drain, p.Reload, p.Listen)
	}
	for _, c := range []ready.Check{p.Ready.Check, p.Health.Check} {
		if c.Listener != "" && !steers(c.Listener) ||
			(c.Listener != "") != strings.Contains(c.URL+c.Address, "{listener:"+c.Listener+"}") {
			t.Errorf("accepted %+v", c)
		}
	}
	paths := append(slices.Clone(p.EnvironmentFiles), p.Directory, p.File)
	for _, path := range append(paths, p.Watch...) {
		if !filepath.IsAbs(strings.TrimPrefix(path, environment.Optional)) {
			t.Errorf("%q is not absolute", path)
		}
	}
	for name, value := range p.Environment {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			t.Errorf("variable %q=%q", name, value)
		}
	}
	for name := range p.Limits.RLimits {
		if _, known := spawn.RLimit(name); !known {
			t.Errorf("limit %s is not known", name)
		}
	}
	for _, s := range p.Stop.Steps {
		if s.Signal <= 0 || s.Wait <= 0 {
			t.Errorf("step %+v", s)
		}
	}
	switch {
	case len(p.Command) == 0 || p.Command[0] == "", p.Line <= 0, !goodName(p.Name), p.Workers < 1, p.Reload.MaxSurge < 1,
		len(p.Stop.Steps) == 0, p.Reload.MaxDraining < 1, p.Restart.BackoffMin <= 0,
		p.Restart.BackoffMin > p.Restart.BackoffMax,
		p.Ready.Timeout <= 0, p.Ready.Delay > p.Ready.Timeout:
		t.Errorf("accepted %+v", p)
	}
	probe := p.Ready.Method == ready.HTTP || p.Ready.Method == ready.TCP || p.Ready.Method == ready.Exec
	if probe != (p.Ready.Interval > 0) || (p.Ready.Method == ready.HTTP) != (p.Ready.URL != "") ||
		(p.Ready.Method == ready.TCP) != (p.Ready.Address != "") ||
		(p.Ready.Method == ready.Exec) != (len(p.Ready.Command) > 0) {
		t.Errorf("accepted %+v", p.Ready)
	}
}

package config

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
)

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

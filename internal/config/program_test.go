package config

import (
	"runtime"
	"testing"
)

func TestWorkersAutoCountsTheCPUsThatSupervisordDoesNotUse(t *testing.T) {
	want := CPUs()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(want + 1)) // as supervisord limits its threads
	if c := load(t, "[program.web]\ncommand = [\"sleep\"]\nworkers = \"auto\"\n"); c.Programs[0].Workers != want {
		t.Errorf("%d workers, want %d", c.Programs[0].Workers, want)
	}
}

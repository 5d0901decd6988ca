package convert

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/convert/source"
)

// lines returns n numbered lines.
func lines(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestHugeSourcesAreConvertedOrRejectedSoon converts large sources with even larger results.
func TestHugeSourcesAreConvertedOrRejectedSoon(t *testing.T) {
	const soon = time.Minute // they take seconds at most, but the machine may be busy
	for name, s := range map[string]source.Input{
		"sections":  {Kind: source.Supervisor, Text: lines("[s%d]\n", 10_000)},
		"keys":      {Kind: source.Supervisor, Text: "[program:a]\n" + lines("k%d=1\n", 28_000)},
		"continued": {Kind: source.Supervisor, Text: "[program:a]\nx=1\n" + strings.Repeat(" y\n", 20_000)},
		"variables": {Kind: source.Supervisor, Text: "[program:a]\ncommand=x\nenvironment=" + lines("A%d=1,", 9000)},
		"programs":  {Kind: source.Procfile, Text: lines("p%d: x\n", 8000)},
		"garbage":   {Kind: source.Supervisor, Text: strings.Repeat("x\n", 130_000)},
		"processes": {Kind: source.Supervisor,
			Text: "[program:a]\ncommand=x%(process_num)d\nprocess_name=%(process_num)d\nnumprocs=1000\nenvironment=" +
				lines("A%d=1,", 100)},
		"programs' variables": {Kind: source.Supervisor,
			Text: "[supervisord]\nenvironment=" + lines("A%d=1,", 500) + "\n" + lines("[program:p%d]\ncommand=x\n", 200)},
		"percent": {Kind: source.Supervisor, Text: "[program:a]\ncommand=x " + strings.Repeat("%(ENV_A)s", 28_000)},
	} {
		start := time.Now()
		s.Name = name
		r, err := Convert(s, elsewhere("testdata"))
		if took := time.Since(start); took > soon {
			t.Errorf("%s took %v", name, took)
		}
		if err == nil && check(t, r) != nil || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %.300v", name, err)
		}
		t.Logf("%s: %v %.80v", name, time.Since(start), err)
	}
}

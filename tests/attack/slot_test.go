package attack

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestWorkersWithASocketEachMustNotEndForGood(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"on-failure", "never"} {
		m := lab.Start(t, lab.TwoWorkers)
		m.Serves(1)
		m.Write(strings.Replace(lab.TwoWorkers, "127.0.0.1:0\"", "127.0.0.1:0\"\nper_slot = true", 1) +
			"[program.web.restart]\nwhen = \"" + when + "\"\n")
		words := []string{"per_slot", "with restart.when = \"" + when, `write restart.when = "always"`}
		m.CtlFails(78, words, "check")
		m.CtlFails(78, append(words, "nothing has changed"), "reload")
		m.Untouched(m.WorkerPID(1))
	}
}

package systemd_test

import (
	"slices"
	"testing"
)

func TestJournalHasTheOutputOfWorkersAndTheFieldsOfTheMastersLines(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(program("broken", "127.0.0.1:8081", "/usr/local/bin/hello", "-fail") +
			program("talker", "127.0.0.1:8080", "/bin/sh", "-c",
				"echo to stdout; echo '<4>to stderr' >&2; exec /usr/local/bin/hello"))
		worker := l.Workers("hello")[0]
		var said []string
		for _, entry := range l.Journal("-u", "supervisord", "_PID="+worker) {
			said = append(said, entry["PRIORITY"]+" "+entry["MESSAGE"])
		}
		for _, want := range []string{"6 to stdout", "4 to stderr"} {
			if !slices.Contains(said, want) {
				t.Errorf("under PID %s the journal has %q, want %q", worker, said, want)
			}
		}
		serves := l.Journal("-u", "supervisord", "SUPERVISORD_PROGRAM=talker", "SUPERVISORD_GENERATION=1", "PRIORITY=6",
			"_PID="+l.Master())
		if !slices.ContainsFunc(serves, func(e Entry) bool { return e["MESSAGE"] != "" }) {
			t.Errorf("of program talker the journal has %v", serves)
		}
		if failed := l.Journal("-u", "supervisord", "SUPERVISORD_PROGRAM=broken", "PRIORITY=3"); len(failed) == 0 {
			t.Error("the failed start is not an error in the journal")
		}
		if wrong := l.Journal("-u", "supervisord", "SUPERVISORD_PROGRAM=talker", "PRIORITY=3"); len(wrong) > 0 {
			t.Errorf("the serving program has errors: %v", wrong)
		}
	})
}

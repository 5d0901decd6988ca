package tests

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// talker writes bursts of numbered lines until TERM, and then a last line "end".
const talker = `
trap 'echo $$ end; exit 0' TERM
echo >&$NOTIFY_FD
i=0
while :; do
	j=0
	while [ $j -lt 100 ]; do echo $$ $i; i=$((i+1)); j=$((j+1)); done
	sleep 0.02 & wait $!
done
`

func TestNoCapturedLineIsLostOverReloadsUpgradesAndRotation(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.File("talker", talker)
	m.Start("[program.web]\ncommand = [\"sh\", \"{dir}/talker\"]\nstdout = \"capture\"\nstderr = \"capture\"\n" +
		"[program.web.log]\nfile = \"web.log\"\n[program.web.ready]\nmethod = \"notify\"\n")
	m.Serves(1)
	for i := range 4 {
		m.Upgrade(lab.Upgraded)
		m.Reload()
		m.Serves(i + 2)
		if i == 1 {
			lab.Must(t, os.Rename(m.Path("web.log"), m.Path("web.log.1")))
			m.Signal(syscall.SIGUSR1)
			m.Await(lab.Says(lab.USR1))
		}
		time.Sleep(50 * time.Millisecond) // some more lines
	}
	m.Finish()
	next, ended := map[string]int{}, 0
	for line := range strings.Lines(m.Read("web.log.1") + m.Read("web.log")) {
		pid, what, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if what == "end" {
			ended++
			continue
		}
		if want := fmt.Sprint(next[pid]); what != want {
			t.Fatalf("line %q of worker %s, want %s", what, pid, want)
		}
		next[pid]++
	}
	if len(next) != 5 || ended != 5 {
		t.Errorf("%d workers wrote, %d of them a last line: %v", len(next), ended, next)
	}
}

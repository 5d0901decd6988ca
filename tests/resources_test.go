package tests

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// Tests of this file are not run beside others.

func TestDescriptorsDoNotGrowOver200Reloads(t *testing.T) {
	m := lab.Start(t, lab.Web)
	count := func() int { return len(lab.Descriptors(t, m.PID())) }
	m.Serves(1)
	reloads := func(from, to int) {
		for generation := from; generation <= to; generation++ {
			m.Reload()
			m.Serves(generation)
			m.Gone(generation - 1)
		}
	}
	reloads(2, 20)
	m.Settle()
	before := count()
	reloads(21, 201)
	m.Until(fmt.Sprintf("there are no more than the %d descriptors that there were after 20 reloads", before), func() bool { return count() <= before })
}

func TestDescriptorsDoNotGrowByReloadsThatFail(t *testing.T) {
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	taken := lab.Occupy(t)
	fail := func() {
		m.Write(strings.Replace(lab.Web, "{worker}", `"{dir}/nothing"`, 1))
		m.Await(lab.Says(lab.GenerationGone), lab.After(m.Reload()))
		m.Write(lab.Web + lab.Listener(lab.Reserve(t)) + lab.Listener(taken))
		m.Await(lab.Says(lab.Refused), lab.After(m.Reload()))
	}
	fail()
	m.Settle()
	before := len(lab.Descriptors(t, m.PID()))
	for range 20 {
		fail()
	}
	m.Until(fmt.Sprintf("there are no more than the %d descriptors that there were", before), func() bool { return len(lab.Descriptors(t, m.PID())) <= before })
}

func TestWithTenWorkersItNeedsNoMoreThan16MiB(t *testing.T) {
	if lab.RaceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	m := lab.Start(t, strings.Replace(lab.Web, "[[", "workers = 10\n[[", 1))
	m.Serves(1)
	for generation := 2; generation <= 6; generation++ {
		m.Reload()
		m.Gone(generation - 1)
	}
	resident := func() int {
		kib, err := strconv.Atoi(strings.TrimSuffix(lab.ProcStatus(m.PID())["VmRSS"], " kB"))
		lab.Must(t, err)
		return kib
	}
	m.Until("what the reload needed is given back", func() bool { return resident() <= 16<<10 })
	t.Logf("%.1f MiB resident", float64(resident())/1024)
}

func TestIdleItDoesNotWakeUp(t *testing.T) {
	if lab.RaceEnabled {
		t.Skip("the race detector wakes up by itself")
	}
	// Nothing is watched here: others who write beside a watched file, as many do in /tmp, do wake it up.
	m := lab.Start(t, strings.Replace(lab.Web, "[[", "workers = 3\n[[", 1))
	m.Serves(1)
	m.Reload()
	m.Gone(1)
	m.Settle()
	// After work the runtime of Go gives memory back for a while, and it wakes about once a minute by itself. What is
	// periodic would be seen in each of these stretches.
	fewest := 1 << 30
	for range 3 {
		before := lab.Switches(t, m.PID())
		time.Sleep(5 * time.Second)
		if fewest = min(fewest, lab.Switches(t, m.PID())-before); fewest <= 1 {
			return
		}
	}
	t.Errorf("it woke up at least %d times in each 5 s", fewest)
}

func TestSIGPIPEIsIgnoredWhereThatIsAskedFor(t *testing.T) {
	t.Parallel()
	const pipe = 1 << (syscall.SIGPIPE - 1)
	for _, asked := range []bool{false, true} {
		m := lab.Start(t, fmt.Sprintf("[program.web]\ncommand = [{sleep}]\nlimits.ignore_sigpipe = %v\n", asked))
		m.Serves(1)
		var ignored uint64
		_, err := fmt.Sscanf(lab.ProcStatus(m.WorkerPID(1))["SigIgn"], "%x", &ignored)
		lab.Must(t, err)
		if ignored&pipe != 0 != asked || ignored&^pipe != 0 {
			t.Errorf("asked for %v, the worker ignores %#x", asked, ignored)
		}
	}
}

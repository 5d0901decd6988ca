package tests

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/tests/ports"
)

// Tests of this file are not run beside others.

func TestDescriptorsDoNotGrowOver200Reloads(t *testing.T) {
	m := start(t, web)
	count := func() int { return len(descriptors(t, m.pid())) }
	m.serves(1)
	reloads := func(from, to int) {
		for generation := from; generation <= to; generation++ {
			m.reload()
			m.serves(generation)
			m.gone(generation - 1)
		}
	}
	reloads(2, 20)
	m.settle()
	before := count()
	reloads(21, 201)
	m.until(fmt.Sprintf("there are no more than the %d descriptors that there were after 20 reloads", before), func() bool { return count() <= before })
}

func TestDescriptorsDoNotGrowByReloadsThatFail(t *testing.T) {
	m := start(t, web)
	m.serves(1)
	taken := occupy(t)
	fail := func() {
		m.write(strings.Replace(web, "{worker}", `"{dir}/nothing"`, 1))
		m.await(says(generationGone), after(m.reload()))
		m.write(web + listener(ports.Reserve(t)) + listener(taken))
		m.await(says(refused), after(m.reload()))
	}
	fail()
	m.settle()
	before := len(descriptors(t, m.pid()))
	for range 20 {
		fail()
	}
	m.until(fmt.Sprintf("there are no more than the %d descriptors that there were", before), func() bool { return len(descriptors(t, m.pid())) <= before })
}

func TestWithTenWorkersItNeedsNoMoreThan16MiB(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	m := start(t, strings.Replace(web, "[[", "workers = 10\n[[", 1))
	m.serves(1)
	for generation := 2; generation <= 6; generation++ {
		m.reload()
		m.gone(generation - 1)
	}
	kib, err := strconv.Atoi(strings.TrimSuffix(status(m.pid())["VmRSS"], " kB"))
	must(t, err)
	t.Logf("%.1f MiB resident", float64(kib)/1024)
	if kib > 16<<10 {
		t.Errorf("it has %.1f MiB resident", float64(kib)/1024)
	}
}

func TestIdleItDoesNotWakeUp(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector wakes up by itself")
	}
	// Nothing is watched here: others who write beside a watched file, as many do in /tmp, do wake it up.
	m := start(t, strings.Replace(web, "[[", "workers = 3\n[[", 1))
	m.serves(1)
	m.reload()
	m.gone(1)
	m.settle()
	// After work the runtime of Go gives memory back for a while, and it wakes about once a minute by itself. What is
	// periodic would be seen in each of these stretches.
	fewest := 1 << 30
	for range 3 {
		before := switches(t, m.pid())
		time.Sleep(5 * time.Second)
		if fewest = min(fewest, switches(t, m.pid())-before); fewest <= 1 {
			return
		}
	}
	t.Errorf("it woke up at least %d times in each 5 s", fewest)
}

// switches counts how often a process has waited for something, in all its threads.
func switches(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	must(t, err)
	sum := 0
	for _, task := range tasks {
		n, _ := strconv.Atoi(table(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))["voluntary_ctxt_switches"])
		sum += n
	}
	return sum
}

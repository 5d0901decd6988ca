package tests

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// The tests of this file do not run in parallel.

func TestDescriptorsDoNotGrowByReloads(t *testing.T) {
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	taken := lab.Occupy(t)
	count := func() int { return len(lab.Descriptors(t, m.PID())) }
	deploy := func() { // one that fails, one that is refused, and one that serves
		m.Write(strings.Replace(lab.Web, "{worker}", `"{dir}/nothing"`, 1))
		m.Await(lab.Says(lab.GenerationGone), lab.After(m.Reload()))
		m.Write(lab.Web + lab.Listener(lab.Reserve(t)) + lab.Listener(taken))
		m.Await(lab.Says(lab.Refused), lab.After(m.Reload()))
		m.Write(lab.Web)
		last := m.Reload()
		m.Await(lab.Says(lab.GenerationServes), lab.After(last))
		m.Await(lab.Says(lab.GenerationGone), lab.After(last))
	}
	for range 10 {
		deploy()
	}
	m.Settle()
	before := count()
	for range 20 {
		deploy()
	}
	m.Until(fmt.Sprintf("at most %d descriptors are open, as after 10 deploys", before),
		func() bool { return count() <= before })
}

// everything is a configuration of ten workers with all that supervisord does beside them.
var everything = "http = \"unix:{dir}/page.sock\"\n" +
	strings.Replace(strings.Replace(lab.Web, "\"notify\"", "\"accept\"", 1),
		"[[", "workers = 10\nstdout = \"capture\"\nstderr = \"capture\"\n[[", 1)

func TestIdleWithTenWorkersItHasNoMoreThan8MiBOfItsOwn(t *testing.T) {
	if lab.RaceEnabled {
		t.Skip("the race detector needs memory itself")
	}
	m := lab.Start(t, everything)
	m.Serves(1)
	share := func() int {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", m.PID()))
		lab.Must(t, err)
		_, after, _ := strings.Cut(string(text), "\nAnonymous:")
		kib, err := strconv.Atoi(strings.Fields(after)[0])
		lab.Must(t, err)
		return kib
	}
	rests := func(when string) {
		m.Until("the memory is returned "+when, func() bool { return share() <= 8<<10 })
		t.Logf("%.1f MiB %s", float64(share())/1024, when)
	}
	rests("after the start")
	for generation := 2; generation <= 21; generation++ {
		m.Reload()
		m.Gone(generation - 1)
	}
	t.Logf("%.1f MiB at the end of the reloads", float64(share())/1024)
	rests("after reloads")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", m.Path("page.sock"))
		}}}
	for _, path := range []string{"/metrics", "/", "/page.js", "/state"} {
		answer, err := client.Get("http://localhost" + path)
		lab.Must(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		lab.Must(t, err)
		answer.Body.Close() //nolint:errcheck // it was read
	}
	rests("after requests")
}

func TestIdleItDoesNotWakeUp(t *testing.T) {
	if lab.RaceEnabled {
		t.Skip("the race detector wakes up periodically")
	}
	// Nothing is watched here: a write beside a watched file, as is common in /tmp, would wake supervisord up.
	m := lab.Start(t, everything)
	m.Serves(1)
	m.Reload()
	m.Gone(1)
	m.Settle()
	// After work supervisord returns memory once, and the Go runtime wakes about once in two minutes anyway. A periodic
	// wake-up of supervisord itself would show in each of these intervals.
	fewest := 1 << 30
	for range 4 {
		before := lab.Switches(t, m.PID())
		time.Sleep(5 * time.Second)
		if fewest = min(fewest, lab.Switches(t, m.PID())-before); fewest == 0 {
			return
		}
	}
	t.Errorf("supervisord woke up at least %d times in each 5 s", fewest)
}

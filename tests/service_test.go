package tests

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/tests/ports"
)

// hello is the example worker, which drains as a worker should.
const hello = `
[program.web]
command = [{hello}]
workers = 2
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
`

// Tests of this file are not run beside others: it is the machine under load that they look at.

func TestNoRequestIsLostWithAHUPEachSecond(t *testing.T) {
	pressed(t, hello, 200, time.Second, 4)
}

func TestNoRequestIsLostWithAHUPEvery100Milliseconds(t *testing.T) {
	pressed(t, hello, 200, 100*time.Millisecond, 30)
}

func TestNoRequestIsLostByARollingReload(t *testing.T) {
	pressed(t, strings.Replace(hello, "workers = 2", "workers = 3", 1)+"[program.web.reload]\nstrategy = \"rolling\"\n", 50, 300*time.Millisecond, 8)
}

func TestNoRequestIsLostOnAUnixSocket(t *testing.T) {
	m := prepare(t)
	m.start(strings.Replace(hello, "127.0.0.1:0", "unix:{dir}/s", 1))
	m.serves(1)
	m.press("unix:"+m.path("s"), 50, 200*time.Millisecond, 8)
}

func TestNoRequestIsLostWithASocketForEachSlot(t *testing.T) {
	m := prepare(t)
	at := ports.Reserve(t)
	m.start(strings.Replace(hello, "127.0.0.1:0\"", at+"\"\nper_slot = true", 1))
	m.serves(1)
	m.press(at, 50, 200*time.Millisecond, 8)
}

func TestNoRequestIsLostWhileReloadsFail(t *testing.T) {
	m := prepare(t)
	m.start(hello)
	m.serves(1)
	at := m.address()
	m.write(strings.Replace(hello, "{hello}", `{hello}, "-fail"`, 1))
	l := press(t, at, 50, 2*time.Millisecond)
	for generation := 2; generation <= 9; generation++ {
		m.reload()
		m.await(says(trialFailed), gen(generation))
	}
	l.lossless(t)
	if len(l.generations) != 1 {
		t.Errorf("there answered the generations %v", l.generations)
	}
}

func TestNoRequestIsLostWhenAllOfTheConfigurationChanges(t *testing.T) {
	m := prepare(t)
	m.start(hello)
	m.serves(1)
	l := press(t, m.address(), 50, 2*time.Millisecond)
	for generation := 2; generation <= 9; generation++ {
		m.write(strings.Replace(hello, "workers = 2", fmt.Sprintf("workers = %d\nenvironment = { N = \"%d\" }", 1+generation%3, generation), 1) +
			fmt.Sprintf("[[program.web.listen]]\naddress = %q\n", ports.Reserve(t)))
		m.reload()
		m.serves(generation)
	}
	l.lossless(t)
}

func pressed(t *testing.T, config string, clients int, every time.Duration, times int) {
	t.Helper()
	m := start(t, config)
	m.serves(1)
	m.press(m.address(), clients, every, times)
}

// press puts load on an address while HUPs come, and fails if a request is lost or a generation has not served.
func (m *master) press(address string, clients int, every time.Duration, times int) {
	m.t.Helper()
	l := press(m.t, address, clients, 10*time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range times {
		<-tick.C
		m.signal(syscall.SIGHUP)
	}
	m.awaitN(2, says(generationServes))
	for began := 0; began < m.count(says(trialBegan)); { // the last one may still be on trial, and one more be due
		began = m.count(says(trialBegan))
		m.awaitN(began, says(generationServes))
		m.settle()
	}
	l.lossless(m.t)
	m.never(says(trialFailed))
	m.never(says(workerKilled))
	m.never(says(workerDied))
	if began, served := m.count(says(trialBegan)), m.count(says(generationServes)); served != began || served < 2 {
		m.t.Errorf("%d generations began and %d served", began, served)
	}
}

// The trap is a spawn that makes the shared socket blocking: a Go worker then hangs in accept and does not see its TERM until
// one more client comes.
func TestASlowWorkerStopsInTimeWhileTheNextGenerationInitialises(t *testing.T) {
	m, gate := besideAGate(t)
	answer := promise(t, m.address(), "/slow?d=1s") // one request while the next one initialises
	time.Sleep(100 * time.Millisecond)              // the worker has it
	m.open(gate)
	m.serves(2)
	told := m.await(says(workerTold), gen(1))
	if got := answer(); !strings.Contains(got, "generation=1") {
		t.Errorf("the answer is %q", got)
	}
	stopped := m.await(says(workerStopped), gen(1))
	if took := stopped.Time.Sub(told.Time); took > 5*time.Second {
		t.Errorf("it took %v after TERM", took)
	}
	m.never(says(workerKilled))
}

// besideAGate starts hello with one worker, and a second generation that was spawned but waits at a gate before it does anything.
func besideAGate(t *testing.T) (m *master, gate string) {
	t.Helper()
	one := strings.Replace(hello, "workers = 2", "workers = 1", 1)
	m = prepare(t)
	gate = m.fifo("gate")
	m.start(one)
	m.serves(1)
	m.write(strings.Replace(one, "{hello}", `"sh", "-c", "read x <`+gate+`; exec \"$@\"", "sh", {hello}`, 1))
	m.reload()
	m.worker(2)
	return m, gate
}

func TestTheOldGenerationServesWhileTheNextOneInitialises(t *testing.T) {
	m, gate := besideAGate(t)
	for range 20 {
		if got := ask(t, m.address(), "/"); !strings.Contains(got, "generation=1") {
			t.Fatalf("there answers %s", got)
		}
	}
	m.open(gate)
	m.serves(2)
}

func TestAnIdleKeepAliveConnectionIsServedAcrossAReload(t *testing.T) {
	m := start(t, strings.Replace(hello, "{hello}", `{hello}, "-linger", "5s"`, 1))
	m.serves(1)
	c := &client{address: m.address()}
	t.Cleanup(c.close)
	if _, err := c.get("/"); err != nil {
		t.Fatal(err)
	}
	m.reload()
	m.serves(2)
	m.awaitN(2, says(workerTold), gen(1))
	m.until("a request on the connection is answered with the wish to close it", func() bool {
		if _, err := c.get("/"); err != nil {
			t.Fatalf("the next request on the connection: %v", err)
		}
		return c.conn == nil
	})
	m.gone(1)
}

func TestAKeepAliveClientWhoseRequestIsInHandIsSentAway(t *testing.T) {
	m := start(t, hello)
	m.serves(1)
	c := &client{address: m.address()}
	t.Cleanup(c.close)
	must(t, c.connect())
	answered := make(chan error)
	go func() {
		_, err := c.get("/slow?d=700ms")
		answered <- err
	}()
	time.Sleep(100 * time.Millisecond) // the worker has it
	m.reload()
	m.awaitN(2, says(workerTold), gen(1))
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if c.conn != nil {
		t.Error("the client was not told to close the connection")
	}
	c.close()
	m.gone(1)
}

func TestALoadThatMeetsABadWorkerIsSeenToFail(t *testing.T) {
	// The proof that the load of these tests can fail: a worker that is killed in the midst of it.
	m := start(t, strings.Replace(hello, "workers = 2", "workers = 1", 1))
	m.serves(1)
	l := press(t, m.address(), 20, time.Millisecond)
	for n := 1; n <= 20 && len(l.seen()) == 0; n++ {
		last := m.awaitN(n, says(workerReady))[n-1]
		m.until("requests are answered", func() bool { _, err := get(m.address(), "/"); return err == nil || errors.Is(err, syscall.ECONNRESET) })
		must(t, syscall.Kill(last.PID, syscall.SIGKILL))
		m.await(says(workerDied), after(last))
	}
	if y := l.end(); len(y.failed) == 0 {
		t.Error("no request was lost, although workers were killed")
	}
}

// seen is what has failed so far.
func (l *load) seen() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := map[string]int{}
	for k, n := range l.failed {
		now[k] = n
	}
	return now
}

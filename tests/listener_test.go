package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// helloWith is hello with two workers and these keys of its listener; the address is known.
func helloWith(address string, keys ...string) string {
	return strings.Replace(lab.Hello, "address = \"127.0.0.1:0\"", "address = \""+address+"\"\n"+strings.Join(keys, "\n"), 1)
}

// socketOf is the socket that a worker of a generation was started with, at descriptor 3.
func socketOf(m *lab.Supervisord, generation int) string {
	m.T.Helper()
	runs := m.Await(lab.Says(lab.WorkerRuns), lab.Gen(generation))
	return lab.Descriptors(m.T, runs.PID)[3]
}

// changes reloads, one after the other, configurations under load; none may cost a request.
func changes(m *lab.Supervisord, configs ...string) {
	m.T.Helper()
	load := lab.Press(m.T, m.Address(), 6, 2*time.Millisecond)
	for i, config := range configs {
		m.Write(config)
		m.CtlOK("reload", "--drained")
		m.Gone(i + 1)
	}
	load.Lossless(m.T)
}

func TestChangedNonblockIsAnotherSocketAndCostsNoRequest(t *testing.T) {
	t.Parallel()
	for _, address := range []string{lab.Reserve(t), "127.0.0.1:0"} {
		m := lab.Start(t, helloWith(address))
		m.Serves(1)
		sockets := []string{socketOf(m, 1)}
		at := m.Address()
		load := lab.Press(t, at, 6, 2*time.Millisecond)
		for generation, nonblock := range []string{2: "true", 3: "false", 4: "true"} {
			if nonblock == "" {
				continue
			}
			m.Write(helloWith(address, "nonblock = "+nonblock))
			m.CtlOK("reload", "--drained")
			sockets = append(sockets, socketOf(m, generation))
		}
		load.Lossless(t)
		for i := 1; i < len(sockets); i++ {
			if sockets[i] == sockets[i-1] {
				t.Errorf("generations %d and %d have one socket", i, i+1)
			}
		}
		if m.Address() != at {
			t.Errorf("the address is %s, it was %s", m.Address(), at)
		}
		m.Finish()
	}
}

// TestChangedNonblockIsSet has a worker that leaves the mode of its socket alone, as Go does not.
func TestChangedNonblockIsSet(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Plain+lab.Listener("127.0.0.1:0"))
	m.Serves(1)
	m.Write(lab.Plain + lab.Listener("127.0.0.1:0") + "nonblock = true\n")
	m.CtlOK("reload", "--drained")
	if lab.FDFlags(t, m.WorkerPID(2), 3)&syscall.O_NONBLOCK == 0 {
		t.Error("it blocks")
	}
}

func TestFailedReloadWithAnotherSocketCostsNoRequest(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, helloWith("127.0.0.1:0"))
	m.Serves(1)
	load := lab.Press(t, m.Address(), 6, 2*time.Millisecond)
	broken := strings.Replace(helloWith("127.0.0.1:0", "nonblock = true"), "{hello}", `"sh", "-c", "sleep 0.2; exit 1"`, 1)
	for range 2 {
		m.Write(broken)
		m.CtlFails(11, nil, "reload")
		m.Write(helloWith("127.0.0.1:0"))
		m.CtlOK("reload", "--drained")
	}
	load.Lossless(t)
}

func TestPerSlotAndReusePortChangeWithoutALoss(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, helloWith("127.0.0.1:0"))
	m.Serves(1)
	before := socketOf(m, 1)
	slots := helloWith("127.0.0.1:0", "per_slot = true")
	changes(m, slots, helloWith("127.0.0.1:0", "reuse_port = true"), slots, helloWith("127.0.0.1:0"))
	for _, runs := range m.AwaitN(2, lab.Says(lab.WorkerRuns), lab.Gen(5)) {
		if now := lab.Descriptors(t, runs.PID)[3]; now != before {
			t.Errorf("a worker has %s, the first ones had %s", now, before)
		}
	}
}

// TestUpgradeBetweenTwoSockets upgrades while an old generation has one socket of an address and the new one another.
func TestUpgradeBetweenTwoSockets(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, helloWith("127.0.0.1:0"))
	m.Serves(1)
	address, worker := m.Address(), m.WorkerPID(1)
	lab.Must(t, syscall.Kill(worker, syscall.SIGSTOP)) // it stays
	m.Write(helloWith("127.0.0.1:0", "nonblock = true"))
	m.CtlOK("reload")
	m.Await(lab.Says(lab.WorkerTold), lab.Gen(1))
	socket := socketOf(m, 2)
	load := lab.Press(t, address, 6, 2*time.Millisecond)
	m.Upgrade(lab.Upgraded)
	m.Signal(syscall.SIGHUP)
	m.Serves(3)
	m.Gone(2)
	lab.Must(t, syscall.Kill(worker, syscall.SIGCONT))
	m.Gone(1)
	m.Reload()
	m.Gone(3)
	load.Lossless(t)
	if now := socketOf(m, 4); now != socket || m.Address() != address {
		t.Errorf("the socket is %s at %s, it was %s at %s", now, m.Address(), socket, address)
	}
}

func TestChangesThatTheKernelDoesNotAllowChangeNothingAndSayWhatTo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after, line string
		words               []string
	}{
		"a unix socket": {helloWith("unix:{dir}/s"), helloWith("unix:{dir}/s", "nonblock = true"), ":11", []string{"listen[0].nonblock: cannot change", "supervisord stop"}},
		"rolling": {helloWith("127.0.0.1:0") + "[program.web.reload]\nstrategy = \"rolling\"\n",
			helloWith("127.0.0.1:0", "nonblock = true") + "[program.web.reload]\nstrategy = \"rolling\"\n", ":11", []string{"listen[0].nonblock: cannot change", `strategy = "all"`}},
		"ipv6_only": {helloWith("[::1]:0"), helloWith("[::1]:0", "ipv6_only = false"), ":11", []string{"listen[0].ipv6_only: cannot change", "restart supervisord"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, c.before)
			m.Serves(1)
			socket := socketOf(m, 1)
			m.Write(c.after)
			m.CtlFails(78, append(c.words, m.Path("config.toml")+c.line), "reload")
			m.Write(c.before)
			m.CtlOK("reload", "--drained")
			if socketOf(m, 2) != socket {
				t.Error("the socket has changed")
			}
		})
	}
}

// TestNonblockOfAStoppedProgramChangesInPlace is the remedy of the errors above.
func TestNonblockOfAStoppedProgramChangesInPlace(t *testing.T) {
	t.Parallel()
	plain := lab.Plain + lab.Listener("unix:{dir}/s")
	m := lab.Start(t, plain)
	m.Serves(1)
	m.CtlOK("stop", "web")
	m.Write(plain + "nonblock = true\n")
	m.CtlOK("reload")
	m.CtlOK("start", "web")
	pid := m.Await(lab.Says(lab.WorkerRuns), lab.Gen(2)).PID
	if lab.FDFlags(t, pid, 3)&syscall.O_NONBLOCK == 0 {
		t.Error("it blocks")
	}
	if left, _ := filepath.Glob(m.Path(".s.*")); len(left) > 0 {
		t.Error(fmt.Sprint(left, " is left"))
	}
}

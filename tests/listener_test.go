package tests

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// helloWith is hello with two workers and these listener keys, at a fixed address.
func helloWith(address string, keys ...string) string {
	return strings.Replace(lab.Hello, "address = \"127.0.0.1:0\"", "address = \""+address+"\"\n"+strings.Join(keys, "\n"), 1)
}

// socketsAt returns the sockets that supervisord holds at an address.
func socketsAt(m *lab.Supervisord, address string) (found []string) {
	m.T.Helper()
	listening := lab.Listening(m.T)
	for _, to := range lab.Descriptors(m.T, m.PID()) {
		if listening[to] == address && !slices.Contains(found, to) {
			found = append(found, to)
		}
	}
	slices.Sort(found)
	return found
}

// plainWith is a program that does not touch its socket, with these listener keys.
func plainWith(address string, keys ...string) string {
	return lab.Plain + lab.Listener(address) + strings.Join(keys, "\n") + "\n"
}

// socketOf returns the socket that a worker of plainWith was started with.
func socketOf(m *lab.Supervisord, generation int) string {
	m.T.Helper()
	return lab.Descriptors(m.T, m.Await(lab.Says(lab.WorkerRuns), lab.Gen(generation)).PID)[3]
}

// changes reloads these configurations one after the other under load and fails if a request is lost.
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

// TestChangedNonblockIsSet needs a worker that does not change the mode of its socket, as Go would.
func TestChangedNonblockIsSet(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, plainWith("127.0.0.1:0"))
	m.Serves(1)
	m.Write(plainWith("127.0.0.1:0", "nonblock = true"))
	m.CtlOK("reload", "--drained")
	if lab.FDFlags(t, m.WorkerPID(2), 3)&syscall.O_NONBLOCK == 0 {
		t.Error("it blocks")
	}
}

func TestFailedReloadWithANewSocketLosesNoRequest(t *testing.T) {
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

func TestPerSlotAndReusePortChangeWithoutLoss(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, helloWith("127.0.0.1:0"))
	m.Serves(1)
	before := socketsAt(m, m.Address())
	slots := helloWith("127.0.0.1:0", "per_slot = true")
	changes(m, slots, helloWith("127.0.0.1:0", "reuse_port = true"), slots, helloWith("127.0.0.1:0"))
	if now := socketsAt(m, m.Address()); len(now) != 1 || len(before) != 1 {
		t.Errorf("the sockets are %v and were %v", now, before)
	}
}

// TestUpgradeBetweenTwoSockets upgrades while the old and the new generation have different sockets of one address.
func TestUpgradeBetweenTwoSockets(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, helloWith("127.0.0.1:0"))
	m.Serves(1)
	address, worker := m.Address(), m.WorkerPID(1)
	lab.Must(t, syscall.Kill(worker, syscall.SIGSTOP)) // the old worker keeps draining
	m.Write(helloWith("127.0.0.1:0", "nonblock = true"))
	m.CtlOK("reload")
	m.Await(lab.Says(lab.WorkerTold), lab.Gen(1))
	before := socketsAt(m, address)
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
	now := socketsAt(m, address) // three generations lived at a time; their sockets stay, so that none gets another number in the kernel's group
	if len(before) != 2 || len(now) != 3 || !slices.Contains(now, before[0]) || !slices.Contains(now, before[1]) {
		t.Errorf("the sockets are %v and were %v", now, before)
	}
}

func TestImpossibleListenerChangesChangeNothingAndOfferARemedy(t *testing.T) {
	t.Parallel()
	const share = `handover = "share"` // so that it can be seen that the socket stays
	for name, c := range map[string]struct {
		before, after, line string
		words               []string
	}{
		"a unix socket": {plainWith("unix:{dir}/s", share), plainWith("unix:{dir}/s", share, "nonblock = true"), ":11", []string{"listen[0].nonblock: cannot change", "supervisord stop"}},
		"rolling": {plainWith("127.0.0.1:0") + "[program.web.reload]\nstrategy = \"rolling\"\n",
			plainWith("127.0.0.1:0", "nonblock = true") + "[program.web.reload]\nstrategy = \"rolling\"\n", ":10", []string{"listen[0].nonblock: cannot change", "supervisord stop"}},
		"ipv6_only": {plainWith("[::1]:0", share), plainWith("[::1]:0", share, "ipv6_only = false"), ":11", []string{"listen[0].ipv6_only: cannot change", "restart supervisord"}},
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

// TestNonblockOfAStoppedProgramChangesInPlace follows the remedy in the errors above.
func TestNonblockOfAStoppedProgramChangesInPlace(t *testing.T) {
	t.Parallel()
	plain := plainWith("unix:{dir}/s")
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
}

// TestHandoverChangesAtAReloadWithoutLoss: a shared listener becomes a steered one and back, while clients connect all the time.
func TestHandoverChangesAtAReloadWithoutLoss(t *testing.T) {
	t.Parallel()
	with := func(listener, strategy string) string {
		return helloWith("127.0.0.1:0", listener) + "[program.web.reload]\nstrategy = \"" + strategy + "\"\n"
	}
	m := lab.Start(t, with(`handover = "share"`, "all"))
	m.Serves(1)
	address := m.Address()
	load := lab.PressNew(t, address, 6, 2*time.Millisecond)
	for _, config := range []string{
		with("", "all"), with(`handover = "share"`, "all"), with(`handover = "steer"`, "all"), with("", "rolling"), with("per_slot = true", "rolling"),
		with("", "all"), with("per_slot = true", "all"), with(`handover = "share"`, "rolling"), with("", "all"),
	} {
		m.Write(config)
		m.CtlOK("reload", "--drained")
	}
	load.Lossless(t)
	if m.Address() != address {
		t.Errorf("the address is %s, it was %s", m.Address(), address)
	}
}

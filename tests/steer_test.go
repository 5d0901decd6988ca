package tests

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// steeredReloads is the number of reloads in a row under load.
const steeredReloads = 20

func TestWorkerThatStopsBadlyLosesNothingUnderLoad(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Web) // http.Server.Shutdown on TERM
	m.Serves(1)
	load := lab.PressNew(t, m.Address(), 30, 0)
	for n := range steeredReloads {
		last := m.Reload()
		m.Await(lab.After(last), lab.Says(lab.GenerationServes))
		m.Gone(n + 1)
	}
	if n := load.Lossless(t); n < steeredReloads {
		t.Errorf("only %d generations have answered", n)
	}
}

// inHand is a request that a worker has in hand until it is completed.
type inHand struct {
	t    *testing.T
	conn net.Conn
}

// begin sends the beginning of a request, and waits until a worker that answers others has had time to read it.
func begin(t *testing.T, address string) *inHand {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	lab.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: test\r\n")
	lab.Must(t, err)
	lab.Ask(t, address, "/") // accepted later
	return &inHand{t, conn}
}

// completes sends the rest and returns the answer.
func (h *inHand) completes() string {
	h.t.Helper()
	_, err := io.WriteString(h.conn, "Connection: close\r\n\r\n")
	lab.Must(h.t, err)
	answer, err := http.ReadResponse(bufio.NewReader(h.conn), nil)
	if err != nil {
		h.t.Fatalf("the request that was in hand is lost: %v", err)
	}
	body, err := io.ReadAll(answer.Body)
	lab.Must(h.t, err)
	return string(body)
}

// replacedInHand starts a program and reloads it while generation 1 has a request in hand. The worker notes its
// signals.
func replacedInHand(t *testing.T, m *lab.Supervisord, config string) *inHand {
	t.Helper()
	m.File("notes", "")
	m.Start(strings.Replace(config, "{worker}", `{worker}, "note={dir}/notes"`, 1))
	m.Serves(1)
	h := begin(t, m.Address())
	m.Reload()
	m.Serves(2)
	return h
}

func told(m *lab.Supervisord, generation int) bool {
	return strings.Contains(m.Read("notes"), fmt.Sprintf("%d 0 TERM", generation))
}

// reaches fails unless all of many new connections reach this generation.
func reaches(t *testing.T, m *lab.Supervisord, generation int) {
	t.Helper()
	address := m.Address()
	for range 100 {
		if got := lab.Ask(t, address, "/"); !strings.Contains(got, fmt.Sprintf("generation=%d ", generation)) {
			t.Fatalf("%s answers a new connection", got)
		}
	}
}

func TestNewConnectionsReachNewGenerationBeforeOldOneIsTold(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	h := replacedInHand(t, m, lab.Web)
	reaches(t, m, 2)
	if told(m, 1) {
		t.Error("the old worker was told to stop while it had a request in hand")
	}
	if got := h.completes(); !strings.Contains(got, "generation=1 ") {
		t.Errorf("%s has answered the request that was in hand", got)
	}
	m.Gone(1)
	if !told(m, 1) {
		t.Error("the old worker is gone without having been told")
	}
}

func TestOldWorkerIsToldAtDrainTimeoutAtTheLatest(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	replacedInHand(t, m, lab.Web+"[program.web.drain]\ntimeout = \"700ms\"\n")
	serves := m.Serves(2)
	stop := m.Await(lab.Says(lab.WorkerTold), lab.Gen(1))
	if took := stop.Time.Sub(serves.Time); took < 690*time.Millisecond {
		t.Errorf("the old worker was told after %s", took)
	}
	m.Gone(1)
}

func TestUpgradeLetsOldWorkerFinish(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	h := replacedInHand(t, m, lab.Web)
	m.Upgrade(lab.Upgraded)
	reaches(t, m, 2)
	if told(m, 1) {
		t.Error("the old worker was told to stop while it had a request in hand")
	}
	h.completes()
	m.Gone(1)
}

func TestUpgradeDuringCanaryKeepsItsShare(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.Web)
	m.Serves(1)
	m.CtlOK("reload", "web", "--canary", "50%", "--hold")
	address := m.Address()
	share := func() (canary int) {
		for range 400 {
			if strings.Contains(lab.Ask(t, address, "/"), "generation=2 ") {
				canary++
			}
		}
		return canary
	}
	if n := share(); n < 140 || n > 260 {
		t.Errorf("%d of 400 connections reach the canary, want about 200", n)
	}
	m.Upgrade(lab.Upgraded)
	if n := share(); n < 140 || n > 260 {
		t.Errorf("after an upgrade %d of 400 connections reach the canary, want about 200", n)
	}
	m.CtlOK("abort", "web")
	reaches(t, m, 1)
}

func TestUpgradeKeepsGenerationForRollback(t *testing.T) {
	t.Parallel()
	m := lab.WithOwnBinary(t)
	m.Start(lab.Web + "[program.web.reload]\nkeep = \"1h\"\n")
	m.Serves(1)
	m.Reload()
	m.Serves(2)
	workers := m.PIDs()
	m.Upgrade(lab.Upgraded)
	reaches(t, m, 2)
	if now := m.PIDs(); len(now) != 2 || !slices.Equal(now, workers) {
		t.Fatalf("the workers were %v and are %v", workers, now)
	}
	m.CtlOK("rollback", "web")
	reaches(t, m, 1)
	m.Gone(2)
	if now := m.PIDs(); len(now) != 1 || !slices.Contains(workers, now[0]) {
		t.Errorf("the workers were %v and are %v", workers, now)
	}
}

func TestWorkersReplacedSlotBySlotLoseNothingUnderLoad(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Workers("3"), "127.0.0.1:0\"", "127.0.0.1:0\"\nper_slot = true", 1)+
		"[program.web.reload]\nstrategy = \"rolling\"\n")
	m.Serves(1)
	load := lab.PressNew(t, m.Address(), 20, 0)
	for n := range steeredReloads / 2 {
		last := m.Reload()
		m.Await(lab.After(last), lab.Says(lab.GenerationServes))
		m.Gone(n + 1)
	}
	load.Lossless(t)
}

func TestScaledSlotsLoseNothingUnderLoad(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Workers("2"), "127.0.0.1:0\"", "127.0.0.1:0\"\nper_slot = true", 1))
	m.Serves(1)
	load := lab.PressNew(t, m.Address(), 20, 0)
	for n, workers := range []string{"4", "1", "3"} {
		m.CtlOK("scale", "web", workers)
		m.Serves(n + 2)
		m.Gone(n + 1)
	}
	load.Lossless(t)
}

// crowded is enough workers for two sockets, without a word about per_slot.
const crowded = "34"

// drains is lab.Workers with a worker that drains as it should: a replaced worker of a rolling reload, or one that is
// scaled away, is told to stop at a socket that others accept from.
func drains(workers string) string {
	return strings.Replace(lab.Workers(workers), "{worker}", "{hello}", 1)
}

func TestSocketsThatComeAndGoWithTheNumberOfWorkersLoseNothingUnderLoad(t *testing.T) {
	t.Parallel()
	for _, reload := range []string{"", "[program.web.reload]\nstrategy = \"rolling\"\nmax_surge = 8\n"} {
		m := lab.Start(t, drains("2")+reload)
		m.Serves(1)
		load := lab.PressNew(t, m.Address(), 8, 0)
		for n, workers := range []string{crowded, "3", crowded} {
			m.Write(drains(workers) + reload)
			m.Reload()
			m.Serves(n + 2)
			m.Gone(n + 1)
		}
		load.Lossless(t)
		if l := m.Status().Programs[0].Listeners[0]; l.PerSlot != "auto" || l.PerSlotWhy != "" || len(l.FDs) < 2 {
			t.Errorf("the listener is %+v", l)
		}
	}
}

func TestRollingFromSocketsForSlotsToOneAndBackLosesNothingUnderLoad(t *testing.T) {
	t.Parallel()
	const rolling = "[program.web.reload]\nstrategy = \"rolling\"\n"
	perSlot := strings.Replace(drains("3"), "127.0.0.1:0\"", "127.0.0.1:0\"\nper_slot = true", 1)
	m := lab.Start(t, drains("3")+rolling)
	m.Serves(1)
	// few: a handshake that takes longer than its worker lives is lost where a socket closes
	load := lab.PressNew(t, m.Address(), 4, 0)
	for n, config := range []string{perSlot, drains("3"), perSlot, drains("3")} {
		m.Write(config + rolling)
		m.Reload()
		m.Serves(n + 2)
		m.Gone(n + 1)
	}
	load.Lossless(t)
}

func TestScaleKeepsTheSocketsOfARunningGeneration(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, drains(crowded))
	m.Serves(1)
	load := lab.PressNew(t, m.Address(), 8, 0)
	sockets := len(m.Status().Programs[0].Listeners[0].FDs)
	before := m.PIDs()
	for _, workers := range []string{"70", "2"} {
		m.CtlOK("scale", "web", workers)
		m.Until(workers+" workers", func() bool { return strconv.Itoa(len(m.PIDs())) == workers })
	}
	m.Never(lab.Says(lab.GenerationServes), lab.Gen(2))
	got := len(m.Status().Programs[0].Listeners[0].FDs)
	if now := m.PIDs(); got != sockets || sockets != 2 || !slices.Contains(before, now[0]) ||
		!slices.Contains(before, now[1]) {
		t.Errorf("there are %d sockets, before %d; the workers are %v, before %v", got, sockets, now, before)
	}
	m.CtlOK("scale", "web", "1") // one of the two sockets would have no worker
	m.Serves(2)
	m.Gone(1)
	load.Lossless(t)
}

func TestConnectionsQueuedAtACrashedWorkersSocketAreAnswered(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Workers("2"), "127.0.0.1:0\"", "127.0.0.1:0\"\nper_slot = true", 1))
	m.Serves(1)
	pid := m.WorkerPID(1)
	lab.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
	address := m.Address()
	var conns []net.Conn
	for range 20 { // half of them wait in the queue of the worker that hangs
		conn, err := net.Dial("tcp", address)
		lab.Must(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: test\r\n")
		lab.Must(t, err)
		conns = append(conns, conn)
	}
	lab.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	for _, conn := range conns {
		if got := (&inHand{t, conn}).completes(); !strings.Contains(got, "generation=1 ") {
			t.Errorf("the answer is %q", got)
		}
	}
}

package worker

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

func TestReadyJustBeforeTheEndIsNotLost(t *testing.T) {
	l := launcher(t)
	for range 30 {
		s := started(t, l, shell(`echo >&$NOTIFY_FD; exit 5`))
		next[life.ReadySaid](s)
		exits(s, 5)
	}
}

// TestEverythingAWorkerMaySay: what drains is posted once, before ready and with every method; READY=1 counts with its
// own alone.
func TestEverythingAWorkerMaySay(t *testing.T) {
	l, notify, drains := launcher(t), ready.Check{Method: ready.Notify}, life.DrainsItself{}
	for _, c := range []struct {
		messages string
		ready    ready.Check
		want     []life.Event
	}{
		{"EXTEND_TIMEOUT_USEC=1500000|WATCHDOG=trigger|STATUS=a\x1b[2Jb;ERRNO=2|STOPPING=1|STOPPING=1;READY=1", notify,
			[]life.Event{life.Extend{Duration: 1500 * time.Millisecond}, life.Watchdog{Trigger: true},
				life.StatusText{Text: "a [2Jb", Errno: syscall.ENOENT}, life.Leaving{}}},
		{"X_SUPERVISORD_DRAINS=0|READY=1;X_SUPERVISORD_DRAINS=1|X_SUPERVISORD_DRAINS=1;STATUS=up", notify,
			[]life.Event{drains, life.ReadySaid{}, life.StatusText{Text: "up"}}},
		{"READY=1;X_SUPERVISORD_DRAINS=1", ready.Check{Method: ready.Delay, Delay: time.Hour}, []life.Event{drains}},
	} {
		spec := role("notify", "TEST_MESSAGES="+c.messages)
		spec.Ready = c.ready
		s := started(t, l, spec)
		for _, want := range c.want {
			if e := s.next(); e != want {
				t.Errorf("%s: got %T %+v, want %T %+v", c.messages, e, e, want, want)
			}
		}
		next[life.Exited](s)
	}
}

// notifyPath returns the path of a running worker's notify socket.
func notifyPath(t *testing.T, w *Worker) string {
	t.Helper()
	path := w.State().NotifyPath
	if path == "" {
		t.Fatal("the worker has no socket")
	}
	return path
}

// settled waits until all pending closes are done.
func settled(w *Worker) {
	done := make(chan struct{})
	w.aside.Do(func() { close(done) })
	<-done
}

func TestBarrierIsAnsweredAtOnce(t *testing.T) {
	s, _ := sleeper(t, launcher(t), nil)
	settled(s.w)
	before := openDescriptors()
	read, write, err := spawn.Pipe()
	must.Do(t, err)
	must.Do(t, sendTo(notifyPath(t, s.w), []byte("BARRIER=1"), write))
	unix.Close(write)
	poll := []unix.PollFd{{Fd: int32(read)}}
	if n, err := unix.Poll(poll, 2000); n != 1 || err != nil {
		t.Errorf("the pipe was not closed: %d %v", n, err)
	}
	unix.Close(read)
	settled(s.w)
	if now := openDescriptors(); now != before {
		t.Errorf("%d descriptors instead of %d", now, before)
	}
}

func TestStrangersAreNotHeard(t *testing.T) {
	needRoot(t, "another user")
	l := launcher(t)
	s, _ := sleeper(t, l, func(spec *Spec) { spec.Credential = &spawn.Credential{UID: 70001, GID: 70001} })
	path := notifyPath(t, s.w)
	if fi, err := os.Stat(filepath.Dir(path)); err != nil || fi.Mode().Perm() != 0o711 {
		t.Errorf("other users can list %v, %v", fi, err)
	}
	stranger := role("foreign", "TEST_SOCKET="+path)
	stranger.Command[0] = copyOfSelf(t)
	stranger.Credential = &spawn.Credential{UID: 70002, GID: 70002}
	exits(started(t, l, stranger), 0)
	sendTo(path, []byte("STATUS=true"))
	if e := next[life.StatusText](s); e.Text != "true" {
		t.Error(e)
	}
}

// TestWhoMaySpeakForAWorker: its descendants, whatever they have left, and who has dropped its privileges.
func TestWhoMaySpeakForAWorker(t *testing.T) {
	l, all := launcher(t), map[string]*subject{}
	for name, script := range map[string]string{
		"a child that stays":     "os.fork() == 0 and say('READY=1')",
		"a child that has ended": "os.fork() == 0 and (say('READY=1'), os._exit(0)) or os.wait()",
		"a grandchild":           "os.fork() == 0 and (os.fork() == 0 and say('READY=1'))",
		"a daemon that has forked twice": "os.fork() == 0 and (os.setsid(), os.fork() == 0 and " +
			"(time.sleep(0.1), say('READY=1')) or os._exit(0)) or os.wait()",
		"a daemon that has forgotten where it was": "os.fork() == 0 and (os.setsid(), os.fork() == 0 and " +
			"(time.sleep(0.1), os.chdir('/'), say('READY=1')) or os._exit(0)) or os.wait()",
		"a child in another process group":  "os.fork() == 0 and (os.setpgid(0, 0), say('READY=1'))",
		"one that has changed its user":     "os.setgid(70003), os.setuid(70003), say('READY=1')",
		"a child that has changed its user": "os.fork() == 0 and (os.setuid(70003), say('READY=1'))",
		"an orphan that has changed its user": "os.setuid(70003), os.fork() == 0 and (os.fork() == 0 and " +
			"(time.sleep(0.1), say('READY=1')) or os._exit(0)) or os.wait()",
	} {
		if os.Geteuid() == 0 || !strings.Contains(name, "user") {
			all[name] = started(t, l, inPythonReady(t, script+"\ntime.sleep(1000)"))
		}
	}
	for name, s := range all {
		t.Log(name)
		next[life.ReadySaid](s)
		s.end()
	}
	needRoot(t, "another user")
	spec := role("notify", "TEST_MESSAGES=READY=1")
	spec.Command = append([]string{"setpriv", "--reuid=70003", "--clear-groups", copyOfSelf(t)}, spec.Command[1:]...)
	s := started(t, l, spec)
	next[life.ReadySaid](s)
	next[life.Exited](s)
}

// copyOfSelf is a copy of this binary that every user may execute.
func copyOfSelf(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "bin"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	data, err := os.ReadFile(self())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "w"), data, 0o755)
	}
	must.Do(t, err)
	return filepath.Join(dir, "w")
}

func TestFloodOfOneWorkerDelaysNoOther(t *testing.T) {
	l := launcher(t)
	block := make(chan struct{})
	done := make(chan life.Exited, 1)
	spec := role("flood")
	spec.Ready = ready.Check{Method: ready.Delay, Delay: time.Millisecond} // READY=1 does not count with this method
	l.Start(spec, func(e life.Event) {
		// nobody reads its events, but its socket is still read
		<-block
		if x, ok := e.(life.Exited); ok {
			done <- x
		}
	})
	s := started(t, l, shell(`echo >&$NOTIFY_FD`))
	next[life.ReadySaid](s)
	next[life.Exited](s)
	close(block)
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("the flood does not end")
	}
}

func TestEventsOfAFloodAreKeptOnce(t *testing.T) {
	q := newMailbag()
	q.put(life.Spawned{})
	for range 1000 {
		q.put(life.StatusText{Text: "a"})
		q.put(life.Watchdog{})
		q.put(life.Extend{Duration: 1})
	}
	q.put(life.StatusText{Text: "b"})
	q.put(life.Watchdog{Trigger: true})
	q.put(life.Watchdog{})
	events := q.take()
	if len(events) < 4 || len(events) > 5 || events[1] != (life.StatusText{Text: "b"}) ||
		events[2] != (life.Watchdog{Trigger: true}) {
		t.Errorf("%v", events)
	}
}

func TestTooLongDirectoryIsReported(t *testing.T) {
	_, err := NewLauncher(Needs{Directory: "/tmp/" + strings.Repeat("x", 90)})
	if err == nil || !strings.Contains(err.Error(), "choose a shorter one") {
		t.Error(err)
	}
	os.Remove("/tmp/" + strings.Repeat("x", 90))
}

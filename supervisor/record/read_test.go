package record

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/ready"
)

func TestStoredProcessWithoutARecordIsStopped(t *testing.T) {
	r := reloading(t)
	h := newInheritance()
	h.Record = r
	adopted, stray := exec.Command("sleep", "1000"), exec.Command("sleep", "1000")
	for number, c := range map[int]*exec.Cmd{1: adopted, 99: stray} {
		must.Do(t, c.Start())
		pidfd := must.Get(unix.PidfdOpen(c.Process.Pid, 0))(t)
		h.workers[workerName("web", number)] = map[string]int{worker.FDProcess: pidfd}
	}
	r.Programs[0].Workers = map[int]WorkerRecord{1: {State: worker.State{PID: adopted.Process.Pid}}}

	l := &Orphans{search: OrphanSearch{Log: zap.NewNop()}}
	l.take(h)
	if len(l.serving) != 1 || l.serving[0].pid != stray.Process.Pid || len(h.workers) != 1 {
		t.Errorf("taken: %v; left: %v", l.serving, h.workers)
	}
	l.Claim(func(string) bool { return false }, func(func(string, int) bool) {})
	free := l.Release(func(string) bool { return true }, func(*Orphan) bool { return false })
	if len(free) != 1 || !slices.Equal(l.Ending(), []int{stray.Process.Pid}) {
		t.Fatalf("released: %v; ending: %v", free, l.Ending())
	}
	must.Do(t, stray.Process.Signal(syscall.SIGSTOP)) // as a supervisord may have left it
	go free[0].End(DefaultStop())
	if err := stray.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("process %d: %v", stray.Process.Pid, err)
	}
	l.Ended(free[0])
	if len(l.Ending()) > 0 || len(l.serving) > 0 {
		t.Errorf("left are %v and %v", l.Ending(), l.serving)
	}
	unix.Close(h.workers[workerName("web", 1)][worker.FDProcess])
	if err := adopted.Process.Kill(); err != nil {
		t.Errorf("the known process: %v", err)
	}
	adopted.Wait() //nolint:errcheck // it was killed
}

func TestUnknownNotifySocketIsRemoved(t *testing.T) {
	dead := must.Get(ready.NewDirectory(t.TempDir()))(t)
	defer dead.Remove() //nolint:errcheck // the test looks at what is left before
	fd, path, err := dead.Socket()
	must.Do(t, err)
	h := newInheritance()
	h.workers[workerName("web", 99)] = map[string]int{worker.FDNotify: fd}
	h.Drop(func(string, int) { t.Error("a notify socket is kept as a filter") })
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("the directory of %s: %v", path, err)
	}
}

// lockedPIDFile is a file with a PID that this process has locked, as a child that a supervisor has forked does.
func lockedPIDFile(t *testing.T, pid int) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "pid"))
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(pid) + "\n")
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	must.Do(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func ended(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("true")
	must.Do(t, cmd.Run())
	return cmd.Process.Pid
}

func TestPIDFileOfADeadProcessIsTakenWhenItsLastChildUnlocksIt(t *testing.T) {
	t.Parallel()
	f := lockedPIDFile(t, ended(t))
	time.AfterFunc(50*time.Millisecond, func() { f.Close() })
	p := must.Get(LockPIDFile(f.Name()))(t)
	if err := p.Remove(); err != nil {
		t.Error(err)
	}
}

func TestLockedPIDFileIsWaitedForOnlyIfItsProcessIsDead(t *testing.T) {
	t.Parallel()
	for pid, waits := range map[int]bool{ended(t): true, os.Getpid(): false} {
		f, began := lockedPIDFile(t, pid), time.Now()
		if _, err := LockPIDFile(f.Name()); !errors.Is(err, ErrRunning) || time.Since(began) >= forkPatience != waits {
			t.Errorf("process %d is waited for: %v, want %v: %v", pid, time.Since(began), waits, err)
		}
	}
}

// handlerOf returns what the kernel does about a signal.
func handlerOf(sig syscall.Signal) siginfo.Disposition {
	now := siginfo.Ignore.Set(sig)
	now.Set(sig)
	return now
}

func TestCaughtSignalsGoToTheNewImageOrComeAgain(t *testing.T) {
	again := make(chan os.Signal, 3)
	signal.Notify(again, syscall.SIGHUP, syscall.SIGTERM, LeaveSignal)
	defer signal.Stop(again)
	handler := handlerOf(syscall.SIGTERM)
	caught := []siginfo.Caught{{Number: syscall.SIGHUP, PID: 7, UID: 8}, {Number: LeaveSignal}}
	err := execute(Image{
		Caught: func() []siginfo.Caught {
			for sig, want := range map[syscall.Signal]siginfo.Disposition{
				syscall.SIGHUP: siginfo.Ignore, syscall.SIGUSR2: siginfo.Ignore,
				syscall.SIGTERM: siginfo.Default, LeaveSignal: siginfo.Default,
			} {
				if got := handlerOf(sig); got != want {
					t.Errorf("the handler of %v is %v, want %v, or the signal is lost", sig, got, want)
				}
			}
			return caught
		},
		Exec: func(_ string, _, env []string) error {
			all := append([]siginfo.Caught{{Number: syscall.SIGTERM, PID: 5}}, caught...)
			if got, want := fmt.Sprint(Caught(env)), fmt.Sprint(all); got != want {
				t.Errorf("the new image gets %v, want %v", got, want)
			}
			return errors.New("no such image")
		},
	}, []string{"A=b", signalsVariable + "=15/0/5/0"}, nil)
	if err == nil {
		t.Error("no error")
	}
	for got := []os.Signal{}; len(got) < 3; {
		got = append(got, <-again)
	}
	if got := handlerOf(syscall.SIGTERM); got != handler {
		t.Errorf("afterwards the handler of TERM is %v, want %v", got, handler)
	}
}

func TestNothingIsCaughtWithoutTheVariable(t *testing.T) {
	for _, value := range []string{"", ",", "x", "-1", "0"} {
		if got := Caught([]string{signalsVariable + "=" + value}); len(got) > 0 {
			t.Errorf("%q gives %v", value, got)
		}
	}
}

func TestPIDFileRemovesItsOwnFileOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	p, err := LockPIDFile(path)
	if err == nil {
		err = p.Remove()
	}
	if _, gone := os.Stat(path); err != nil || gone == nil {
		t.Errorf("its own file is still there: %v", err)
	}
	if p, err = LockPIDFile(path); err != nil {
		t.Fatal(err)
	}
	must.Do(t, errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600), p.Remove()))
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file of another process is gone: %v", err)
	}
}

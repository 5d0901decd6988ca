package worker

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
)

// toFile sends both streams of a shell script to log.
func toFile(log *testLog, script string) Spec {
	spec := shell(script)
	spec.Environment = []string{"PATH=" + os.Getenv("PATH")}
	spec.Stdout, spec.Stderr = output.Destination{Kind: output.ToFile,
		File: log.LogFile}, output.Destination{Kind: output.ToFile, File: log.LogFile}
	return spec
}

func TestGrandchildThatKeepsThePipeOpenDoesNotDelayTheEnd(t *testing.T) {
	l, log, f := launcher(t), logFile(t), tempFile(t)
	spec := toFile(log, `setsid sh -c 'echo $$ >&3; echo ready >&'$NOTIFY_FD'; exec sleep 100' & read x <&4; echo bye`)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	spec.Sockets = []int{int(f.Fd()), int(read.Fd())}
	s := start(t, l, spec)
	must[life.Spawned](s)
	must[life.ReadySaid](s)
	write.WriteString("go\n")
	must[life.Exited](s)
	if text := log.written(t); text != "bye\n" {
		t.Errorf("%q", text)
	}
	data, _ := os.ReadFile(f.Name())
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(pid, syscall.SIGKILL) // unless it was killed as a stray already
	if !eventually(func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }) {
		t.Errorf("process %d was not reaped", pid)
	}
}

func TestExitIsPostedWhileTheOutputReceiverHangs(t *testing.T) {
	l, hangs := launcher(t), make(chan struct{})
	spec := shell("echo out; echo err >&2; exit 6")
	spec.Stdout, spec.Stderr = output.Destination{Kind: output.Capture}, output.Destination{Kind: output.Capture}
	spec.Captured = func(string, int, []byte) { <-hangs }
	s := start(t, l, spec)
	must[life.Spawned](s)
	if e := must[life.Exited](s); e.Status.ExitStatus() != 6 {
		t.Errorf("%s", e)
	}
	close(hangs)
	s.w.side.Wait()
}

// TestStateFreezeAndTheEndDoNotWaitForALog fills a log that nobody reads.
func TestStateFreezeAndTheEndDoNotWaitForALog(t *testing.T) {
	l, said := launcher(t), new(complaints)
	log := openLog(t, fifo(t), said)
	s := start(t, l, toFile(log, `trap 'exit 5' TERM; while :; do echo `+
		`aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done`))
	must[life.Spawned](s)
	if !eventually(func() bool { return len(said.all()) > 0 }) {
		t.Fatal("no line is lost")
	}
	for range 20 {
		if st := s.w.State(); st.PID == 0 {
			t.Errorf("%+v", st)
		}
		if err := l.Freeze(time.Minute); err != nil {
			t.Fatal(err)
		}
		l.Thaw()
	}
	s.signal(15)
	if e := must[life.Exited](s); e.Status.ExitStatus() != 5 {
		t.Errorf("%s", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log.Close(ctx)
}

func TestFreezeGivesUpAndChangesNothing(t *testing.T) {
	l := launcher(t)
	l.gate.RLock()
	if err := l.Freeze(10 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "has not ended within 10ms") {
		t.Errorf("%v", err)
	}
	s := start(t, l, shell("exit 3"))
	must[life.Spawned](s)
	must[life.Exited](s)
	l.gate.RUnlock()
	freeze(t, l)
	l.Thaw()
}

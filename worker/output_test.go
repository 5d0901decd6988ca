package worker

import (
	"context"
	"fmt"
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

func TestTailIsTheEndOfStderrAlone(t *testing.T) {
	l, log := launcher(t), logFile(t)
	s := start(t, l, toFile(log, `echo no; i=0; while [ $i -lt 30 ]; do echo e$i >&2; i=$((i+1)); done; printf `+
		`'last\033[m' >&2`))
	must[life.Spawned](s)
	e := must[life.Exited](s)
	if len(e.Tail) != 20 || e.Tail[0] != "e11" || e.Tail[19] != "last [m" {
		t.Errorf("%q", e.Tail)
	}
}

func TestLinesOfSeveralWorkersAreNotMixed(t *testing.T) {
	l, log := launcher(t), logFile(t)
	var all []*subject
	for i := range 4 {
		c := string(rune('a' + i))
		s := start(t, l, toFile(log, fmt.Sprintf(`i=0; while [ $i -lt 200 ]; do printf %s; printf '%s\n'; i=$((i+1)); done`,
			strings.Repeat(c, 50), strings.Repeat(c, 50))))
		all = append(all, s)
	}
	for _, s := range all {
		for !s.ended {
			s.next()
		}
	}
	data := log.written(t)
	if lines := strings.Count(data, "\n"); lines != len(all)*200 {
		t.Errorf("%d lines", lines)
	}
	for line := range strings.Lines(data) {
		if len(line) == 101 && line != strings.Repeat(line[:1], 100)+"\n" {
			t.Fatalf("mixed: %q", line)
		}
		if len(line) > 101 {
			t.Fatalf("mixed: %q", line)
		}
	}
}

func TestFullDiskLosesOutputAndReportsItOnce(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	said := new(complaints)
	log := openLog(t, "/dev/full", said)
	s := start(t, launcher(t), toFile(log,
		`i=0; while [ $i -lt 20000 ]; do echo aaaaaaaaaaaaaaaaa; i=$((i+1)); done; exit 4`))
	if !isReadyOrExit(s, 4) {
		t.Error("the worker was disturbed")
	}
	log.Close(t.Context())
	if got := said.all(); len(got) != 2 || !strings.Contains(got[0], "no space left") ||
		!strings.Contains(got[1], "lines were lost") {
		t.Errorf("%q", got)
	}
	if n := log.errors.Lost(); n != 20000 {
		t.Errorf("%d lines were lost", n)
	}
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

func TestCapturedLinesSayWhoWroteThem(t *testing.T) {
	l, log := launcher(t), output.NewLog(nil, nil)
	spec := shell(`echo one; echo two >&2; printf three; echo $PPID >/dev/null`)
	spec.Stdout, spec.Stderr = output.Destination{Kind: output.Capture}, output.Destination{Kind: output.Capture}
	spec.Captured = log.Of(7)
	s := start(t, l, spec)
	pid := must[life.Spawned](s).PID
	if e := must[life.Exited](s); len(e.Tail) != 1 || e.Tail[0] != "two" {
		t.Errorf("tail %q", e.Tail)
	}
	lines, _ := log.Last(10)
	got := map[string]bool{}
	for _, line := range lines {
		got[line.Stream+":"+line.Text] = true
		if line.Worker != 7 || line.PID != pid || time.Since(line.Time) > time.Minute {
			t.Errorf("%+v", line)
		}
	}
	if len(lines) != 3 || !got["stdout:one"] || !got["stdout:three"] || !got["stderr:two"] {
		t.Errorf("%+v", lines)
	}
}

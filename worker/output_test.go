package worker

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
)

// toFile sends both streams of a shell script to log.
func toFile(log *testLog, script string) Spec {
	spec := shell(script)
	spec.Stdout, spec.Stderr = output.Destination{Kind: output.ToFile,
		File: log.LogFile}, output.Destination{Kind: output.ToFile, File: log.LogFile}
	return spec
}

func TestGrandchildThatKeepsThePipeOpenDoesNotDelayTheEnd(t *testing.T) {
	l, log, f := launcher(t), logFile(t), tempFile(t)
	spec := toFile(log, `setsid sh -c 'echo $$ >&3; echo ready >&'$NOTIFY_FD'; exec sleep 100' & read x <&4; echo bye`)
	read, write := pipe(t)
	spec.Sockets = []int{int(f.Fd()), int(read.Fd())}
	s := started(t, l, spec)
	next[life.ReadySaid](s)
	write.WriteString("go\n")
	next[life.Exited](s)
	if text := log.written(t); text != "bye\n" {
		t.Errorf("%q", text)
	}
	data, _ := os.ReadFile(f.Name())
	pid := must.Get(strconv.Atoi(strings.TrimSpace(string(data))))(t)
	syscall.Kill(pid, syscall.SIGKILL) // unless it was killed as a stray already
	gone(t, pid)
}

func TestExitIsPostedWhileTheOutputReceiverHangs(t *testing.T) {
	l, hangs := launcher(t), make(chan struct{})
	spec := shell("echo out; echo err >&2; exit 6")
	spec.Stdout, spec.Stderr = output.Destination{Kind: output.Capture}, output.Destination{Kind: output.Capture}
	spec.Captured = func(string, int, []byte) { <-hangs }
	s := started(t, l, spec)
	exits(s, 6)
	close(hangs)
	s.w.side.Wait()
}

// TestStateFreezeAndTheEndDoNotWaitForALog fills a log that nobody reads.
func TestStateFreezeAndTheEndDoNotWaitForALog(t *testing.T) {
	l, log := launcher(t), openLog(t, unit.FIFO(t))
	s := start(t, l, toFile(log, `trap 'exit 5' TERM; while :; do echo `+
		`aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done`))
	next[life.Spawned](s)
	must.Become(t, "a line is lost", func() bool { return log.errors.Lost() > 0 })
	for range 20 {
		if st := s.w.State(); st.PID == 0 {
			t.Errorf("%+v", st)
		}
		must.Do(t, l.Freeze(time.Minute))
		l.Thaw()
	}
	s.signal(15)
	exits(s, 5)
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
	s := started(t, l, shell("exit 3"))
	next[life.Exited](s)
	l.gate.RUnlock()
	freeze(t, l)
	l.Thaw()
}

// testLog opens a log file until the end of the test.
type testLog struct {
	*output.LogFile
	path   string
	errors *output.LogErrors
}

func logFile(t *testing.T) *testLog { t.Helper(); return openLog(t, filepath.Join(t.TempDir(), "log")) }

func openLog(t *testing.T, path string) *testLog {
	t.Helper()
	errors := output.NewLogErrors(func(string, error) {})
	file := must.Get(output.OpenLogFile(t.Context(), output.LogFileSpec{Path: path}, errors))(t)
	t.Cleanup(func() { file.Close(context.Background()) })
	return &testLog{file, path, errors}
}

// written returns the content of the file after all writes.
func (l *testLog) written(t *testing.T) string {
	t.Helper()
	must.Do(t, l.Flush(t.Context()))
	data := must.Get(os.ReadFile(l.path))(t)
	return string(data)
}

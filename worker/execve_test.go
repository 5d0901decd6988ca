package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

// firstImage starts a worker that exits only after the execve, and becomes secondImage with the same PID.
func firstImage() error {
	l, err := NewLauncher(os.Getenv("TEST_DIR"))
	if err != nil {
		return err
	}
	spawned := make(chan life.Event, 10)
	w := l.Start(successor(), func(e life.Event) {
		if _, only := e.(life.Changed); !only {
			spawned <- e
		}
	})
	fmt.Printf("%T\n", <-spawned)
	if err := l.Freeze(time.Minute); err != nil {
		return err
	}
	a := Adoption{State: w.State(), Descriptors: w.Descriptors()}
	for _, fd := range a.Descriptors {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return syscall.Exec(self(), os.Args,
		[]string{"TEST_ROLE=second image", "GORACE=atexit_sleep_ms=0", "TEST_ADOPTION=" + string(data),
			"TEST_DIR=" + os.Getenv("TEST_DIR"), "PATH=" + os.Getenv("PATH")})
}

func successor() Spec {
	return Spec{
		Execution: spawn.Execution{Command: []string{"/bin/sh", "-c",
			`i=0; while [ ! -e "$F" ] && [ $i -lt 1000 ]; do i=$((i+1)); sleep 0.01; done; echo >&$NOTIFY_FD; exit 9`},
			Environment: []string{"PATH=" + os.Getenv("PATH"), "F=" + os.Getenv("TEST_DIR") + "/go"}},
		Ready: ready.Check{Method: ready.Notify},
	}
}

func secondImage() error {
	var a Adoption
	if err := json.Unmarshal([]byte(os.Getenv("TEST_ADOPTION")), &a); err != nil {
		return err
	}
	a.Spec = successor()
	l, err := NewLauncher(os.Getenv("TEST_DIR"), Expect(a.State.PID))
	if err != nil {
		return err
	}
	ended := make(chan bool)
	l.Adopt(a, func(e life.Event) {
		fmt.Printf("%T %v\n", e, e)
		if _, ok := e.(life.Exited); ok {
			close(ended)
		}
	})
	signal := os.Getenv("TEST_DIR") + "/go"
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return err
	}
	<-ended
	os.Remove(signal)
	return l.Close()
}

func TestChildOfTheImageBeforeIsAdoptedAfterAnExecve(t *testing.T) {
	l, log, dir := launcher(t), logFile(t), t.TempDir()
	spec := role("first image", "TEST_DIR="+dir, "PATH="+os.Getenv("PATH"))
	spec.Stdout, spec.Stderr = output.Destination{Kind: output.ToFile,
		File: log.LogFile}, output.Destination{Kind: output.ToFile, File: log.LogFile}
	s := start(t, l, spec)
	must[life.Spawned](s)
	if e := must[life.Exited](s); e.Status != 0 {
		t.Errorf("%s %q", e, e.Tail)
	}
	data := log.written(t)
	lines := strings.Split(string(data), "\n")
	if len(lines) != 5 || lines[0] != "life.Spawned" || !strings.HasPrefix(lines[1], "life.Spawned") ||
		!strings.HasPrefix(lines[2], "life.ReadySaid") || lines[3] != "life.Exited exited with status 9" {
		t.Errorf("%q", lines)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

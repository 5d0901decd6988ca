package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/output"
)

// quiet is a script whose stderr is not ours.
func quiet(script string) Spec {
	spec := shell(script)
	spec.Stderr.Kind = output.Null
	return spec
}

func TestRunTellsStatusAndStderr(t *testing.T) {
	err := launcher(t).Run(t.Context(), quiet("echo bad key >&2; exit 2"))
	if err == nil || !strings.Contains(err.Error(), "exited with status 2; it said:\n\tbad key") {
		t.Error(err)
	}
	var run *RunError
	if !errors.As(err, &run) || run.Exited.Status.ExitStatus() != 2 {
		t.Errorf("%#v", err)
	}
}

func TestRunKillsTheWholeGroupWhenItsTimeIsOver(t *testing.T) {
	begun := filepath.Join(t.TempDir(), "begun")
	must.Do(t, syscall.Mkfifo(begun, 0o600))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		os.ReadFile(begun)
		cancel(context.DeadlineExceeded)
	}()
	begin := time.Now()
	err := launcher(t).Run(ctx, quiet("echo waiting >&2; echo >"+begun+"; sleep 100; true"))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting") {
		t.Error(err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	must.Become(t, "without children", noChildren)
}

func TestRunInAContextThatIsOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := launcher(t).Run(ctx, command("true")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRunGivesStdin(t *testing.T) {
	want := strings.Repeat("x", 1<<20) // more than a pipe holds
	dir := t.TempDir()
	spec := shell("cat >got")
	spec.Directory, spec.Stdin = dir, []byte(want)
	must.Do(t, launcher(t).Run(t.Context(), spec))
	if got, err := os.ReadFile(dir + "/got"); err != nil || string(got) != want {
		t.Errorf("%d bytes arrived: %v", len(got), err)
	}
}

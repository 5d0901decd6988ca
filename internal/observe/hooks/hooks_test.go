package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/spawn"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// fake runs nothing: it passes its arguments to the test, and exits when the test says how.
type fake struct {
	begun chan worker.Spec
	end   chan error
}

func (f *fake) Run(ctx context.Context, s worker.Spec) error {
	f.begun <- s
	select {
	case err := <-f.end:
		return err
	case <-ctx.Done():
		return &worker.RunError{Command: s.Command, Cause: context.Cause(ctx)}
	}
}

func command(hook string) *supervisor.Command {
	c := &config.Program{Name: "web", Hooks: config.Hooks{Timeout: time.Minute}}
	switch hook {
	case afterReload:
		c.Hooks.AfterReload = []string{"told", "after"}
	case workerCrashed:
		c.Hooks.WorkerCrashed = []string{"told", "crashed"}
	}
	return &supervisor.Command{Config: c,
		Spec: &worker.Spec{Execution: spawn.Execution{Directory: "/srv", Environment: []string{"A=1"}}}}
}

func onStage(t *testing.T, play func(h *Waiting, f *fake, logs *observer.ObservedLogs)) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.DebugLevel)
		f := &fake{make(chan worker.Spec, 100), make(chan error)}
		h := New(f, nil, zap.New(core))
		play(h, f, logs)
		h.Close()
	})
}

// tell queues a hook with the command c.
func tell(h *Waiting, c *supervisor.Command, in input) {
	h.command = func(string, int) (*supervisor.Command, error) { return c, nil }
	h.tell(in.Receipt.Generation, in)
}

func told(n int) input {
	return input{Hook: afterReload, Program: "web",
		Receipt: &receipt.Receipt{Program: "web", ReloadRecord: program.ReloadRecord{Generation: n}}}
}

func generationOf(t *testing.T, s worker.Spec) int {
	t.Helper()
	var in input
	must.Do(t, json.Unmarshal(s.Stdin, &in))
	return in.Receipt.Generation
}

func TestHookRunsAsWorker(t *testing.T) {
	onStage(t, func(h *Waiting, f *fake, logs *observer.ObservedLogs) {
		tell(h, command(afterReload), told(7))
		s := <-f.begun
		if !slices.Equal(s.Command, []string{"told", "after"}) || s.Directory != "/srv" || generationOf(t, s) != 7 ||
			!slices.Equal(s.Environment, []string{"A=1", "SUPERVISORD_PROGRAM=web", "SUPERVISORD_HOOK=after_reload"}) {
			t.Errorf("spec is %+v", s)
		}
		f.end <- nil
		synctest.Wait()
		if logs.FilterLevelExact(zapcore.ErrorLevel).Len() > 0 {
			t.Errorf("logged %+v", logs.All())
		}
	})
}

func TestHookNotConfiguredDoesNotRun(t *testing.T) {
	onStage(t, func(h *Waiting, f *fake, _ *observer.ObservedLogs) {
		tell(h, command(workerCrashed), told(1))
		synctest.Wait()
		if len(f.begun) > 0 {
			t.Error("it runs")
		}
	})
}

func TestHooksOfAProgramRunOneAtATimeAndInOrder(t *testing.T) {
	onStage(t, func(h *Waiting, f *fake, _ *observer.ObservedLogs) {
		for n := range 5 {
			tell(h, command(afterReload), told(n))
		}
		other := told(100)
		other.Program = "other"
		tell(h, command(afterReload), other)
		synctest.Wait()
		if n := len(f.begun); n != 2 {
			t.Fatalf("%d run at once, want 2: one per program", n)
		}
		seen := []int{generationOf(t, <-f.begun), generationOf(t, <-f.begun)}
		for range 6 {
			f.end <- nil
			synctest.Wait()
			if len(f.begun) > 0 {
				seen = append(seen, generationOf(t, <-f.begun))
			}
		}
		if seen = slices.DeleteFunc(seen, func(n int) bool { return n == 100 }); !slices.Equal(seen, []int{0, 1, 2, 3, 4}) {
			t.Errorf("ran %v", seen)
		}
	})
}

func TestOldestOfTooManyHooksIsDropped(t *testing.T) {
	onStage(t, func(h *Waiting, f *fake, logs *observer.ObservedLogs) {
		tell(h, command(afterReload), told(0))
		<-f.begun
		for n := 1; n <= maxWaiting+3; n++ {
			tell(h, command(afterReload), told(n))
		}
		if n := logs.FilterMessage("hook dropped: too many are waiting").Len(); n != 3 {
			t.Errorf("%d given up, want 3", n)
		}
		f.end <- nil
		if n := generationOf(t, <-f.begun); n != 4 {
			t.Errorf("%d is next, want 4", n)
		}
	})
}

func TestFailedHookIsLoggedWithItsLastLines(t *testing.T) {
	onStage(t, func(h *Waiting, f *fake, logs *observer.ObservedLogs) {
		tell(h, command(afterReload), told(1))
		<-f.begun
		f.end <- &worker.RunError{Command: []string{"told"},
			Exited: life.Exited{Known: true, Status: 1 << 8, Tail: []string{"no such channel"}}}
		synctest.Wait()
		failed := logs.FilterMessage("hook failed").All()
		if len(failed) != 1 || failed[0].ContextMap()["reason"] != "told: exited with status 1" ||
			fmt.Sprint(failed[0].ContextMap()["stderr"]) != "[no such channel]" {
			t.Errorf("logged %+v", failed)
		}
	})
}

func TestSlowHookIsKilledAndTheNextRuns(t *testing.T) {
	onStage(t, func(h *Waiting, f *fake, logs *observer.ObservedLogs) {
		tell(h, command(afterReload), told(1))
		tell(h, command(afterReload), told(2))
		<-f.begun
		begin := time.Now()
		if n := generationOf(t, <-f.begun); n != 2 || time.Since(begin) != time.Minute {
			t.Errorf("%d runs after %v", n, time.Since(begin))
		}
		if said := logs.FilterMessage(
			"hook failed").All()[0].ContextMap()["reason"]; said != "told after: stopped: not finished within 1m0s" {
			t.Errorf("output %q", said)
		}
	})
}

func TestCloseWaitsAMomentAndThenKills(t *testing.T) {
	onStage(t, func(h *Waiting, f *fake, logs *observer.ObservedLogs) {
		tell(h, command(afterReload), told(1))
		tell(h, command(afterReload), told(2))
		<-f.begun
		begin := time.Now()
		h.Close()
		if time.Since(begin) != grace || len(f.begun) > 0 || logs.FilterMessage("hook dropped: supervisord ends").Len() != 1 {
			t.Errorf("after %v: %+v", time.Since(begin), logs.All())
		}
		if tell(h, command(afterReload), told(3)); len(f.begun) > 0 {
			t.Error("one begins after the end")
		}
	})
}

func TestHookOfUnknownUserDoesNotRun(t *testing.T) {
	onStage(t, func(h *Waiting, f *fake, logs *observer.ObservedLogs) {
		c := command(afterReload)
		c.Spec, c.Config.Directory, c.Config.User = nil, "/", "no-such-user-here"
		if _, err := supervisor.LookUp(c.Config); err == nil || errors.Is(err, os.ErrNotExist) {
			t.Fatalf("looked up: %v", err)
		}
		tell(h, c, told(1))
		for logs.FilterMessage("hook failed").Len() == 0 {
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		if len(f.begun) > 0 {
			t.Error("it runs")
		}
	})
}

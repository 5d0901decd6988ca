package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

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

// stage has Waiting whose hooks run nothing: they end when the test says how. What happens is in lines.
type stage struct {
	*Waiting
	began  time.Time
	config config.Program
	spec   *worker.Spec
	end    map[string]chan error // by program
	mu     sync.Mutex
	lines  []string
}

func onStage(t *testing.T, play func(s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{began: time.Now(), end: map[string]chan error{"web": make(chan error), "api": make(chan error)},
			config: config.Program{Hooks: config.Hooks{Timeout: time.Minute, AfterReload: []string{"told", "after"}}},
			spec:   &worker.Spec{Execution: spawn.Execution{Directory: "/srv", Environment: []string{"A=1"}}}}
		encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg",
			EncodeDuration: zapcore.StringDurationEncoder})
		s.Waiting = New(s, func(string, int) (*supervisor.Command, error) {
			return &supervisor.Command{Config: &s.config, Spec: s.spec}, nil
		}, zap.New(zapcore.NewCore(encoder, zapcore.AddSync(s), zapcore.DebugLevel)))
		play(s)
		s.Close()
	})
}

// Write notes a line, with the time since the beginning.
func (s *stage) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf("%s %s", time.Since(s.began), strings.TrimSpace(string(line))))
	return len(line), nil
}

func (s *stage) Run(ctx context.Context, spec worker.Spec) error {
	var in input
	if err := json.Unmarshal(spec.Stdin, &in); err != nil {
		return err
	}
	fmt.Fprintf(s, "%q in %s with %q: %s of generation %d", spec.Command, spec.Directory, spec.Environment, in.Hook,
		in.Receipt.Generation)
	select {
	case err := <-s.end[in.Program]:
		return err
	case <-ctx.Done():
		return &worker.RunError{Command: spec.Command, Cause: context.Cause(ctx)}
	}
}

// TestHooks reads testdata/hooks.txt; with -rewrite it writes what happens. Each block has a stage of its own, and a
// step in a line:
//
//	reloaded NAME N [M]    generations N to M of a program have replaced others
//	ends NAME [ERROR]      the hook of a program ends
//	wait DURATION, close   time goes by; supervisord ends
//	none                   no such hook is configured
func TestHooks(t *testing.T) {
	datadriven.RunTest(t, "testdata/hooks.txt", func(t *testing.T, d *datadriven.TestData) (happened string) {
		onStage(t, func(s *stage) {
			for line := range strings.Lines(d.Input) {
				s.step(append(strings.Fields(line), "", "", ""))
				synctest.Wait()
			}
			happened = strings.Join(append(s.lines, ""), "\n")
		})
		return happened
	})
}

func (s *stage) step(words []string) {
	switch words[0] {
	case "reloaded":
		n, last := must.Be(strconv.Atoi(words[2])), words[2]
		if words[3] != "" {
			last = words[3]
		}
		for ; n <= must.Be(strconv.Atoi(last)); n++ {
			s.Ended(receipt.Receipt{Program: words[1],
				ReloadRecord: program.ReloadRecord{Generation: n, Outcome: program.Serves}})
			synctest.Wait()
		}
	case "ends":
		var err error
		if words[2] != "" {
			err = &worker.RunError{Command: []string{"told"},
				Exited: life.Exited{Known: true, Status: 1 << 8, Tail: []string{strings.TrimSpace(strings.Join(words[2:], " "))}}}
		}
		s.end[words[1]] <- err
	case "wait":
		time.Sleep(must.Be(time.ParseDuration(words[1])))
	case "close":
		s.Close()
	case "none":
		s.config.Hooks.AfterReload = nil
	default:
		panic(words[0])
	}
}

func TestHookOfUnknownUserDoesNotRun(t *testing.T) {
	onStage(t, func(s *stage) {
		s.spec, s.config.Directory, s.config.User = nil, "/", "no-such-user-here"
		if _, err := supervisor.LookUp(&s.config); err == nil || errors.Is(err, os.ErrNotExist) {
			t.Fatalf("looked up: %v", err)
		}
		s.step([]string{"reloaded", "web", "1", ""})
		s.active.Wait()
		if len(s.lines) != 1 || !strings.Contains(s.lines[0], "hook failed") {
			t.Errorf("it runs: %q", s.lines)
		}
	})
}

package observe

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/observe/page"
	"example.org/supervisord/internal/observe/usage"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
)

// loop is a supervisor made of channels.
type loop struct {
	mu      sync.Mutex
	updates chan *supervisor.Update // of the current subscriber
	status  *supervisor.Status
	asked   map[string]int
	stopped bool
	ran     []worker.Spec
	crash   bool // the program has only a hook for crashes
}

// ask counts a request.
func (l *loop) ask(what string) error {
	l.asked[what]++
	if l.stopped {
		return supervisor.ErrStopping
	}
	return nil
}

func (l *loop) Status(context.Context) (*supervisor.Status, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status, l.ask("status")
}

func (l *loop) Subscribe(context.Context) (<-chan *supervisor.Update, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.updates = make(chan *supervisor.Update, 100)
	return l.updates, l.ask("subscribe")
}

func (l *loop) Unsubscribe(<-chan *supervisor.Update) {}

func (l *loop) HookCommand(context.Context, string, int) (*supervisor.Command, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &config.Program{Hooks: config.Hooks{Timeout: time.Minute, WorkerCrashed: []string{"worker_crashed"}}}
	if !l.crash {
		c.Hooks.AfterReload, c.Hooks.ReloadFailed = []string{"after_reload"}, []string{"reload_failed"}
	}
	return &supervisor.Command{Config: c, Spec: &worker.Spec{}}, l.ask("hook command")
}

func (l *loop) Run(_ context.Context, s worker.Spec) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran = append(l.ran, s)
	return nil
}

func (l *loop) say(reports ...program.Report) {
	l.mu.Lock()
	c := l.updates
	l.mu.Unlock()
	for _, r := range reports {
		c <- &supervisor.Update{Time: time.Now(), Program: "web", Report: r}
	}
	synctest.Wait()
}

func (l *loop) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked[what]
}

// hooked returns the hooks that ran.
func (l *loop) hooked() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, s := range l.ran {
		names = append(names, s.Command[0])
	}
	return strings.Join(names, " ")
}

func onStage(t *testing.T, play func(o *Observer, l *loop, logs *observer.ObservedLogs)) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.DebugLevel)
		l := &loop{status: &supervisor.Status{Programs: []supervisor.ProgramStatus{{Name: "web"}}}, asked: map[string]int{}}
		o := &Observer{Gauge: new(usage.Gauge), Loop: l, Runner: l, Log: zap.New(core)}
		o.Start()
		synctest.Wait()
		play(o, l, logs)
		l.mu.Lock()
		l.stopped = true
		l.mu.Unlock()
		o.Close()
	})
}

var (
	began  = program.Report{Kind: program.TrialBegan, Generation: 2, Serving: 1, Reload: record(program.Pending, false)}
	serves = program.Report{Kind: program.GenerationServes, Generation: 2, Serving: 1,
		Reload: record(program.Serves, false)}
	gone = program.Report{Kind: program.GenerationGone, Generation: 1, Reload: record(program.Serves, true)}
)

// record returns the record of the reload to generation 2.
func record(o program.Outcome, ended bool) *program.ReloadRecord {
	r := &program.ReloadRecord{Generation: 2, Replaced: 1, Outcome: o}
	if !o.Open() {
		r.Decided = time.Unix(1_000_000, 0)
	}
	if o.Failed() {
		r.Failure = &program.Failure{Step: "start"}
	}
	if ended {
		r.Ended = r.Decided.Add(time.Second)
	}
	return r
}

func TestReceiptIsLoggedAndHookRunsWhenReloadEnds(t *testing.T) {
	onStage(t, func(_ *Observer, l *loop, logs *observer.ObservedLogs) {
		l.say(began, serves)
		if logs.FilterMessage("reload report").Len() != 0 || l.hooked() != "" {
			t.Error("it is reported before the end")
		}
		l.say(gone)
		if logs.FilterMessage("reload report").Len() != 1 {
			t.Errorf("logged %+v", logs.All())
		}
		if l.hooked() != "after_reload" {
			t.Errorf("ran %q", l.hooked())
		}
	})
}

func TestCrashHookRunsOnlyAfterCrash(t *testing.T) {
	onStage(t, func(_ *Observer, l *loop, _ *observer.ObservedLogs) {
		l.crash = true
		l.say(program.Report{Kind: program.WorkerDied, Worker: 1, End: program.End{Clean: true}},
			program.Report{Kind: program.WorkerLeaving, Worker: 2}, program.Report{Kind: program.WorkerDied, Worker: 2,
				End: program.End{Expected: true}},
			program.Report{Kind: program.WorkerStopped, Worker: 3}, began, serves, gone)
		if l.hooked() != "" {
			t.Errorf("ran %q", l.hooked())
		}
		l.say(program.Report{Kind: program.WorkerDied, Worker: 4})
		if l.hooked() != "worker_crashed" {
			t.Errorf("ran %q", l.hooked())
		}
	})
}

func TestNothingIsQueriedInADrain(t *testing.T) {
	onStage(t, func(_ *Observer, l *loop, _ *observer.ObservedLogs) {
		l.say(began, serves)
		before := l.count("status")
		time.Sleep(time.Hour)
		if n := l.count("status") - before; n != 0 {
			t.Errorf("%d questions in an hour", n)
		}
	})
}

func TestSlowObserverSubscribesAgain(t *testing.T) {
	onStage(t, func(_ *Observer, l *loop, logs *observer.ObservedLogs) {
		l.say(began)
		l.mu.Lock()
		l.status = &supervisor.Status{Programs: []supervisor.ProgramStatus{{Name: "web",
			History: supervisor.History{Reloads: []program.ReloadRecord{*serves.Reload}}}}}
		close(l.updates)
		l.mu.Unlock()
		synctest.Wait()
		if l.count("subscribe") != 2 || logs.FilterMessageSnippet("missed reports").Len() != 1 {
			t.Fatalf("%v %v", l.asked, logs.All())
		}
		l.say(gone)
		if logs.FilterMessage("reload report").Len() != 1 {
			t.Errorf("logged %+v", logs.All())
		}
	})
}

func TestAddressInUseDoesNotStopTheObserver(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	l := &loop{status: &supervisor.Status{}, asked: map[string]int{}}
	first := &Observer{Gauge: new(usage.Gauge), Loop: l, Runner: l, Log: zap.New(core),
		Page: &page.Site{Address: addr("127.0.0.1:0")}}
	first.Start()
	address := first.Page.Addr().String()
	second := &Observer{Gauge: new(usage.Gauge), Loop: l, Runner: l, Log: zap.New(core),
		Page: &page.Site{Address: addr(address)}}
	second.Start()
	if logs.FilterLevelExact(zapcore.ErrorLevel).Len() != 1 {
		t.Errorf("logged %v", logs.All())
	}
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%v %v", answer, err)
	} else {
		answer.Body.Close()
	}
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	second.Close()
	first.Close()
	if _, err := http.Get("http://" + address + "/healthz"); err == nil || errors.Is(err, context.Canceled) {
		t.Error("it is served after the end")
	}
}

func addr(s string) socket.Address { return must.Be(socket.ParseAddress(s)) }

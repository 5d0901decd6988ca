// Package observe follows what the supervisor reports and makes something of it: receipts of reloads, hooks, metrics, a page. It is only
// a consumer: the loop waits for nothing here, and where this was too slow the gap is noted. While no reload is under way
// and nobody looks, nothing in it wakes up.
package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/observe/hooks"
	"example.org/supervisord/internal/observe/kernel"
	"example.org/supervisord/internal/observe/metrics"
	"example.org/supervisord/internal/observe/page"
	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// Asker answers requests: a supervisor.Supervisor.
type Asker interface {
	Do(context.Context, supervisor.Request) (any, error)
}

// Options is what an Observer needs from outside.
type Options struct {
	Asker     Asker
	Updates   <-chan *supervisor.Update // from the first one on (Supervisor.Follow); nil: from now on
	Runner    hooks.Runner              // runs the hooks
	Log       *zap.Logger
	Version   string
	Gauge     *control.Gauge // of what workers use
	HTTP      socket.Address // where metrics and the page are served; zero: nowhere
	Hosts     []string       // names by which the page may be asked for
	TokenFile string         // of the page; "": it can only be read
	Inherited int            // the socket of the page, from the image before this one (FD); 0 or less: there is none
}

// Observer follows a supervisor.
type Observer struct {
	Options
	hooks   *hooks.Hooks
	metrics *metrics.Metrics // nil: nobody can look
	page    *page.Server     // likewise
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}

	pace    pace
	status  *supervisor.Status // as it was asked for last, while a reload is under way
	leaving map[workerKey]bool

	mu       sync.Mutex // what follows is read by whoever asks
	recorder *receipt.Recorder
	sampler  *receipt.Sampler
	recent   []supervisor.Update // oldest first
}

type workerKey struct {
	program string
	worker  int
}

// Start begins to follow, and to serve if that is wanted. The supervisor need not run yet. That nothing can be served is
// logged and no reason not to go on: who is watched must not depend on who watches.
func Start(o Options) *Observer {
	ob := &Observer{Options: o, hooks: hooks.New(o.Runner, o.Log), done: make(chan struct{}), leaving: map[workerKey]bool{}, recorder: receipt.NewRecorder()}
	ob.sampler = receipt.NewSampler(ob.recorder, system{})
	ob.ctx, ob.cancel = context.WithCancel(context.Background())
	if o.HTTP != (socket.Address{}) {
		ob.serve()
	}
	go ob.run()
	return ob
}

// serve opens the door to those who look.
func (o *Observer) serve() {
	m := metrics.New(o.Version, o.ask)
	p, err := page.Serve(page.Options{
		Address: o.HTTP, Hosts: o.Hosts, TokenFile: o.TokenFile, Inherited: o.Inherited, Log: o.Log, Metrics: m, Status: o.ask, State: o.state, Asker: o.Asker,
	})
	if err != nil {
		o.Log.Error("no metrics and no page: cannot serve them", zap.Stringer("http", o.HTTP), zap.Error(err))
		return
	}
	o.metrics, o.page = m, p
	o.Log.Info("metrics and the page are served", zap.String("address", p.Address()))
}

// FD is the socket of the page, for the next image, or -1.
func (o *Observer) FD() int {
	if o.page == nil {
		return -1
	}
	return o.page.FD()
}

// closeTimeout is for a supervisor that has not ended.
const closeTimeout = time.Second

// Close ends everything. It is to be called when the supervisor does not run any more.
func (o *Observer) Close() {
	patience := time.AfterFunc(closeTimeout, o.cancel)
	<-o.done // when it has seen the last update
	patience.Stop()
	o.cancel()
	if o.page != nil {
		o.page.Close()
	}
	o.hooks.Close()
}

// Leave ends what others see of it: the supervisor leaves its workers to the next one, and this process ends.
func (o *Observer) Leave() {
	if o.page != nil {
		o.page.Close()
	}
}

// askTimeout is within what time the loop must answer: it never does anything that takes long.
const askTimeout = time.Second

func (o *Observer) ask(ctx context.Context) (*supervisor.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	v, err := o.Asker.Do(ctx, supervisor.StatusRequest{})
	if err != nil {
		return nil, err
	}
	return v.(*supervisor.Status), nil
}

// Receipts makes receipts of the records of a program, the newest first. It may be called from anywhere.
func (o *Observer) Receipts(program string, records []program.ReloadRecord) []receipt.Receipt {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sampler.Refused() // one that has ended may not have been seen here yet
	return o.recorder.Receipts(program, records)
}

// run follows, and follows again where this was too slow.
func (o *Observer) run() {
	defer close(o.done)
	defer o.pace.stop()
	updates := o.Updates
	for missed := false; ; missed, updates = true, nil {
		if updates == nil {
			v, err := o.Asker.Do(o.ctx, supervisor.FollowRequest{})
			if err != nil {
				return
			}
			updates = v.(<-chan *supervisor.Update)
		}
		if missed {
			o.Log.Warn("reports of the supervisor were missed: metrics have a gap")
		}
		o.resync(missed)
		if !o.follow(updates) {
			o.Asker.Do(context.Background(), supervisor.UnfollowRequest{Updates: updates}) //nolint:errcheck // then it has ended itself
			return
		}
	}
}

// follow returns true if updates ended before this did.
func (o *Observer) follow(updates <-chan *supervisor.Update) bool {
	for {
		select {
		case u, open := <-updates:
			if !open {
				return o.ctx.Err() == nil
			}
			o.see(*u)
		case <-o.pace.tick():
			o.sample()
		case <-o.ctx.Done():
			return false
		}
	}
}

// resync is for the beginning, and for what was missed.
func (o *Observer) resync(missed bool) {
	v, err := o.Asker.Do(o.ctx, supervisor.StatusRequest{})
	if err != nil {
		return // it has ended
	}
	st := v.(*supervisor.Status)
	o.mu.Lock()
	done := o.recorder.Resync(st, missed)
	o.sampler.Refused()
	o.mu.Unlock()
	for _, r := range done {
		o.ended(r)
	}
	o.status = st
	o.settle()
}

// kept is how many updates are kept for the page, at least.
const kept = 50

// see does with an update what is to be done.
func (o *Observer) see(u supervisor.Update) {
	var failed *receipt.Receipt
	o.mu.Lock()
	if u.Kind == program.GenerationGone {
		o.sampler.Refused()
	}
	done := o.recorder.See(u)
	if u.Kind == program.TrialBegan {
		o.sampler.Refused()
	}
	if u.Kind == program.TrialFailed && u.Reload != nil {
		failed = &o.recorder.Receipts(u.Program, []program.ReloadRecord{*u.Reload})[0]
	}
	o.remember(u)
	o.mu.Unlock()
	if o.metrics != nil {
		o.metrics.See(u)
	}
	o.tell(u, failed)
	if done != nil {
		o.ended(*done)
	}
	o.settle()
	if u.Kind == program.GenerationServes || u.Kind == program.TrialFailed {
		o.pace.soon()
	}
	o.notify()
}

// remember keeps the newest updates, where somebody may look at them.
func (o *Observer) remember(u supervisor.Update) {
	if o.page == nil {
		return
	}
	if o.recent = append(o.recent, u); len(o.recent) > 2*kept {
		o.recent = slices.Clone(o.recent[kept:])
	}
}

// ended is for a receipt that is complete.
func (o *Observer) ended(r receipt.Receipt) {
	r.Log(o.Log)
	if r.Outcome == program.Serves {
		o.hook(r.Generation, hooks.Message{Hook: hooks.AfterReload, Program: r.Program, Receipt: &r})
	}
}

// tell runs the hooks that an update is a reason for.
func (o *Observer) tell(u supervisor.Update, failed *receipt.Receipt) {
	key := workerKey{u.Program, u.Worker}
	switch u.Kind {
	case program.TrialFailed:
		o.hook(u.Generation, hooks.Message{Hook: hooks.ReloadFailed, Program: u.Program, Event: &u, Receipt: failed})
	case program.WorkerLeaving:
		o.leaving[key] = true
	case program.WorkerStopped:
		delete(o.leaving, key)
	case program.WorkerDied:
		if !u.Clean && !o.leaving[key] {
			o.hook(u.Generation, hooks.Message{Hook: hooks.WorkerCrashed, Program: u.Program, Event: &u})
		}
		delete(o.leaving, key)
	}
}

func (o *Observer) hook(generation int, m hooks.Message) {
	v, err := o.Asker.Do(o.ctx, supervisor.CommandRequest{Program: m.Program, Generation: generation})
	if err != nil {
		return // the program is gone, or the supervisor has ended
	}
	o.hooks.Tell(v.(*supervisor.Command), m)
}

func (o *Observer) notify() {
	if o.page != nil {
		o.page.Notify()
	}
}

// system is the kernel that this runs on.
type system struct{}

func (system) AcceptQueue(fd int) (kernel.Queue, error) { return kernel.AcceptQueue(fd) }
func (system) Connections(q []kernel.Query) []kernel.Count {
	return kernel.Processes().Connections(q, time.Time{})
}
func (system) Listen() (kernel.Refused, error) { return kernel.Listen() }

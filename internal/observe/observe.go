// Package observe follows what the supervisor reports and makes receipts, hooks, metrics and a page of it. It only
// consumes: the loop never waits for it.
package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/observe/hooks"
	"example.org/supervisord/internal/observe/metrics"
	"example.org/supervisord/internal/observe/page"
	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/internal/observe/usage"
	"example.org/supervisord/supervisor"
)

// Loop answers requests: a supervisor.Supervisor.
type Loop interface {
	Status(context.Context) (*supervisor.Status, error)
	Subscribe(context.Context) (<-chan *supervisor.Update, error)
	Unsubscribe(<-chan *supervisor.Update)
	HookCommand(ctx context.Context, name string, generation int) (*supervisor.Command, error)
}

// Observer follows a supervisor. Set the exported fields, then call Start.
type Observer struct {
	Loop    Loop
	Updates <-chan *supervisor.Update // from the first one on (Supervisor.Follow); nil: from now on
	Runner  hooks.Runner              // runs the hooks
	Log     *zap.Logger
	Gauge   *usage.Gauge
	Page    *page.Site // serves metrics, too; Start completes it, and sets nil if it cannot be served; nil: neither

	hooks    *hooks.Waiting
	metrics  *metrics.Metrics // nil: not served
	recorder *receipt.Recorder
	recent   recent
	ctx      context.Context
	cancel   context.CancelFunc
	done     chan struct{}
}

// Start begins to follow the supervisor, which need not run yet, and serves metrics and the page if that is configured.
// If they cannot be served, Start logs that and continues.
func (o *Observer) Start() {
	o.recorder, o.done = receipt.NewRecorder(), make(chan struct{})
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.hooks = hooks.New(o.Runner, o.hookCommand, o.Log)
	if o.Page != nil {
		o.serve()
	}
	go o.run()
}

func (o *Observer) serve() {
	m := metrics.New(o.withQueues)
	o.Page.Log, o.Page.Metrics, o.Page.Status, o.Page.View = o.Log, m, o.ask, o.view
	if err := o.Page.Serve(); err != nil {
		o.Log.Error("cannot serve metrics and the page", zap.Stringer("http", o.Page.Address), zap.Error(err))
		o.Page = nil
		return
	}
	o.metrics = m
	o.Log.Info("metrics and the page are served", zap.Stringer("address", o.Page.Addr()))
}

// FD is the socket of the page, for the next image, or -1.
func (o *Observer) FD() int {
	if o.Page == nil {
		return -1
	}
	return o.Page.FD()
}

// closeTimeout is how long Close waits for a supervisor that has not ended.
const closeTimeout = time.Second

// Close ends everything. Call it when the supervisor has ended.
func (o *Observer) Close() {
	late := time.AfterFunc(closeTimeout, o.cancel)
	<-o.done // when it has seen the last update
	late.Stop()
	o.cancel()
	o.Leave()
	o.hooks.Close()
}

// Leave closes the page only: the supervisor leaves its workers to the next one, and this process ends.
func (o *Observer) Leave() {
	if o.Page != nil {
		o.Page.Close()
	}
}

// askTimeout is how long the loop may take to answer: it never does anything that takes long.
const askTimeout = time.Second

func (o *Observer) ask(ctx context.Context) (*supervisor.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return o.Loop.Status(ctx)
}

// withQueues is what metrics show.
func (o *Observer) withQueues(ctx context.Context) (*supervisor.Status, error) {
	st, err := o.ask(ctx)
	if err == nil {
		usage.FillQueues(st)
	}
	return st, err
}

// hookCommand asks what a hook runs as.
func (o *Observer) hookCommand(name string, generation int) (*supervisor.Command, error) {
	return o.Loop.HookCommand(o.ctx, name, generation)
}

// view is what the page shows.
func (o *Observer) view(ctx context.Context) (*page.View, error) {
	st, err := o.ask(ctx)
	if err != nil {
		return nil, err
	}
	o.Gauge.Fill(st)
	return &page.View{Now: time.Now(), Status: st, Recent: o.recent.list()}, nil
}

// run follows the supervisor, and follows again if it was too slow.
func (o *Observer) run() {
	defer close(o.done)
	for updates, missed := o.Updates, false; ; updates, missed = nil, true {
		if updates == nil {
			var err error
			if updates, err = o.Loop.Subscribe(o.ctx); err != nil {
				return // the supervisor has ended
			}
		}
		if missed {
			o.Log.Warn("missed reports of the supervisor; the metrics have a gap")
		}
		o.resync()
		if !o.follow(updates) {
			o.Loop.Unsubscribe(updates)
			return
		}
	}
}

// follow returns true if updates ended before the Observer did.
func (o *Observer) follow(updates <-chan *supervisor.Update) bool {
	for {
		select {
		case u, open := <-updates:
			if !open {
				return o.ctx.Err() == nil
			}
			o.see(*u)
		case <-o.ctx.Done():
			return false
		}
	}
}

// resync reads the records at the beginning, and again when updates were missed.
func (o *Observer) resync() {
	st, err := o.Loop.Status(o.ctx)
	if err != nil {
		return // it has ended
	}
	for _, r := range o.recorder.Resync(st) {
		o.ended(r)
	}
}

// see passes an update on to everything that is interested.
func (o *Observer) see(u supervisor.Update) {
	done := o.recorder.See(u)
	if o.metrics != nil {
		o.metrics.See(u)
	}
	o.hooks.See(u)
	if done != nil {
		o.ended(*done)
	}
	if o.Page != nil {
		o.recent.add(u)
		o.Page.Notify()
	}
}

// ended logs a complete receipt and runs the hook for it.
func (o *Observer) ended(r receipt.Receipt) {
	r.Log(o.Log)
	o.hooks.Ended(r)
}

// How many updates the page shows: of one program, so that one that crashes again and again leaves the others theirs,
// and of all.
const (
	shownOfOne = 50
	shownOfAll = 200
)

// recent is the newest updates, oldest first.
type recent struct {
	mu     sync.Mutex
	events []supervisor.Update
}

func (r *recent) add(u supervisor.Update) {
	u.Reload, u.Stop = nil, nil // the status has them
	r.mu.Lock()
	defer r.mu.Unlock()
	of, oldest := 0, 0
	for i := len(r.events) - 1; i >= 0; i-- {
		if r.events[i].Program == u.Program {
			of, oldest = of+1, i
		}
	}
	switch {
	case of >= shownOfOne:
		r.events = slices.Delete(r.events, oldest, oldest+1)
	case len(r.events) >= shownOfAll:
		r.events = slices.Delete(r.events, 0, 1)
	}
	r.events = append(r.events, u)
}

func (r *recent) list() []supervisor.Update {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

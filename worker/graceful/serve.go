package graceful

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The defaults of Options.
const (
	// supervisord's stop.timeout is 30 s by default; the difference is for the caller's own cleanup
	DefaultDeadline = 28 * time.Second
	DefaultLinger   = 5 * time.Second // for sockets of our own; on inherited ones Deadline
)

// Options say how Serve stops and what it calls meanwhile. The function Serve uses the zero value.
type Options struct {
	// Deadline is how long a stop may take before everything that is left is closed; 0: DefaultDeadline.
	// It must be shorter than the supervisor's stop timeout, after which the supervisor sends KILL.
	Deadline time.Duration

	// Linger is how long a connection may be idle before a stop closes it; negative: not at all. Deadline limits it.
	// 0: Deadline if the socket was inherited, because the next worker serves meanwhile and waiting costs only memory;
	// DefaultLinger if it is our own. The package comment explains what a short Linger costs.
	Linger time.Duration

	// OnStop is called when the stop begins and runs beside the draining. Use it to say goodbye on WebSockets, event
	// streams and streaming RPCs, which would otherwise last until Deadline. ctx ends at Deadline, and OnStop must return
	// then.
	OnStop func(ctx context.Context)

	// Alive is called before each ping if the supervisor asked for a watchdog; while it returns an error, no ping is sent.
	Alive func() error
}

// Server is something that Serve runs. HTTP, GRPC, Conns and Work make them.
type Server interface {
	// run calls accepting once it accepts, drains when st.begun is closed, closes everything when st.over is,
	// and returns when nothing is left. Before begun it returns only if it cannot continue, and has nothing in hand.
	run(st *stop, accepting func()) error
}

// stop is the one stop that all servers of a Serve go through.
type stop struct {
	failed   chan error    // why a server cannot accept any more, so that the stop must begin: room for one of each
	begun    chan struct{} // closed: take nothing new, drain
	over     chan struct{} // closed: close what is left
	at       time.Time     // when it began; valid once begun is closed
	deadline time.Duration
	linger   time.Duration // as in Options
	abrupt   atomic.Bool   // a listener can only be closed, with what is queued there
}

// serving calls serve on a goroutine of its own, and returns when the stop has begun. If serve ends before, the stop
// begins for the error that it returns, and what was accepted is answered. ended is closed when serve has ended.
func (st *stop) serving(serve func() error) (ended <-chan struct{}) {
	done, why := make(chan struct{}), error(nil)
	go func() {
		defer close(done)
		why = serve()
	}()
	select {
	case <-done:
		st.failed <- why
		<-st.begun
	case <-st.begun:
	}
	return done
}

// patience is how long connections that were accepted from an inherited socket, or from our own, may stay idle.
func (st *stop) patience(inherited bool) time.Duration {
	switch {
	case st.linger != 0:
		return max(st.linger, 0)
	case inherited:
		return st.deadline
	}
	return DefaultLinger
}

// silence is how long a client may send nothing at all after it has connected to a server of gRPC or HTTP/2: those
// clients speak first. If 5,000 clients reconnect at once to two CPUs, they need more than 2 s: with a limit of 2 s up
// to 4,754 of 60,000 gRPC calls failed, with 20 s none. It is not longer, and at most half of Deadline, because one
// connection that never sends anything (a port check) delays GOAWAY for all clients.
func (st *stop) silence() time.Duration { return min(10*time.Second, st.deadline/2) }

// Serve is Options{}.Serve.
func Serve(ctx context.Context, servers ...Server) error { return Options{}.Serve(ctx, servers...) }

// Serve runs the servers until TERM, INT or the end of ctx, and returns when the last of them has
// drained as the package comment says. It says ready when all of them accept, and stopping when the stop begins.
//
// It returns nil if nothing was lost, and a *CutOff if Deadline or a second TERM or INT came first. Any other error
// says why a server could not start or continue (the others were drained then), or why ready could not be said. Signals
// are caught only while Serve runs. A TERM within RepeatWindow of the previous one counts as the same.
func (o Options) Serve(ctx context.Context, servers ...Server) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	r := newRunning(o, servers)
	defer r.watch()()
	r.untilStop(ctx, signals)
	r.drain(signals)
	return r.result()
}

// RepeatWindow is the time within which a second TERM or INT counts as the same: systemd with KillMode=control-group
// and the supervisor each send one at nearly the same time.
const RepeatWindow = 200 * time.Millisecond

// settle waits a moment for callbacks whose connections have just been closed, and then leaves those that still run.
func settle(done <-chan struct{}) {
	select {
	case <-done:
	case <-time.After(300 * time.Millisecond):
	}
}

// running is one call of Serve.
type running struct {
	Options
	stop
	servers   int
	accepting chan struct{} // one for each server that accepts
	ended     chan error    // one for each server that ended
	errs      []error
}

// newRunning starts all servers, each on a goroutine of its own that ends by a value in ended.
func newRunning(o Options, servers []Server) *running {
	if o.Deadline <= 0 {
		o.Deadline = DefaultDeadline
	}
	r := &running{
		Options: o, servers: len(servers),
		accepting: make(chan struct{}, len(servers)), ended: make(chan error, len(servers)),
	}
	r.failed, r.begun, r.over = make(chan error, len(servers)), make(chan struct{}), make(chan struct{})
	r.deadline, r.linger = o.Deadline, o.Linger
	for _, s := range servers {
		accepting := sync.OnceFunc(func() { r.accepting <- struct{}{} })
		go func() { r.ended <- s.run(&r.stop, accepting) }()
	}
	return r
}

// watch runs the watchdog until the function that it returns is called.
func (r *running) watch() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = Watchdog(ctx, r.Alive)
	}()
	return func() { cancel(); <-done }
}

// untilStop serves. It says ready when all servers accept, and returns when there is a reason to stop.
func (r *running) untilStop(ctx context.Context, signals <-chan os.Signal) {
	waiting := r.servers
	for {
		if waiting == 0 {
			waiting = -1
			if err := sayReady(!r.abrupt.Load()); err != nil {
				r.errs = append(r.errs, err) // a worker that cannot say ready fails its trial: better now than at the timeout
				return
			}
		}
		select {
		case <-r.accepting:
			waiting--
		case err := <-r.ended:
			r.servers--
			r.errs = append(r.errs, err)
			if err != nil || r.servers == 0 {
				return
			}
		case <-signals:
			return
		case err := <-r.failed:
			r.errs = append(r.errs, err)
			return
		case <-ctx.Done():
			return
		}
	}
}

// drain begins the stop and waits for all servers and for OnStop.
func (r *running) drain(signals <-chan os.Signal) {
	r.at = time.Now()
	close(r.begun)
	_ = Stopping() // if the supervisor is gone, the stop continues
	ctx, cancel := context.WithTimeout(context.Background(), r.Deadline)
	defer cancel()
	said := make(chan struct{})
	go r.goodbye(ctx, said)
	for r.servers > 0 || said != nil {
		select {
		case err := <-r.ended:
			r.servers--
			r.errs = append(r.errs, err)
		case <-said:
			said = nil
		case <-signals:
			if time.Since(r.at) > RepeatWindow {
				cancel()
			}
		case <-ctx.Done():
			r.cut(said)
			return
		}
	}
}

// goodbye calls OnStop beside the draining servers, and closes said when OnStop has returned.
func (r *running) goodbye(ctx context.Context, said chan<- struct{}) {
	defer close(said)
	if r.OnStop != nil {
		r.OnStop(ctx)
	}
}

// cut closes what is left. Servers only close descriptors now, so they end at once; cut does not wait for a callback
// that breaks its contract.
func (r *running) cut(said <-chan struct{}) {
	close(r.over)
	patience := time.After(500 * time.Millisecond)
	for r.servers > 0 || said != nil {
		select {
		case err := <-r.ended:
			r.servers--
			r.errs = append(r.errs, err)
		case <-said:
			said = nil
		case <-patience:
			r.errs = append(r.errs, errors.New("a callback still runs after the deadline"))
			return
		}
	}
}

// result joins what the servers returned. One *CutOff contains everything that was cut off.
func (r *running) result() error {
	whole := &CutOff{After: time.Since(r.at)}
	var errs []error
	for len(r.failed) > 0 {
		errs = append(errs, <-r.failed)
	}
	for _, err := range r.errs {
		if cut := new(CutOff); errors.As(err, &cut) {
			whole.Conns = append(whole.Conns, cut.Conns...)
			whole.Work += cut.Work
			continue
		}
		errs = append(errs, err)
	}
	if len(whole.Conns)+whole.Work > 0 {
		errs = append(errs, whole)
	}
	return errors.Join(errs...)
}

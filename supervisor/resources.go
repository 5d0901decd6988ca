package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/snapshot"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/bind"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

// resources is what the workers of one generation are started with. It belongs to the loop, and owns the log files of
// its snapshot; the lanes are the table's, which keeps their sockets open until Release.
//
//	Prepare ─► prepare: lanes ─► gather: snapshot, preflight ─► prepared ─► Spawn … ─► Forget ─► forget
//	              │ abandon ends gather                            │
//	              └── a restore begins with the snapshot of before ┘
type resources struct {
	number   int
	lanes    []*socket.Lane // one for each listener of its configuration
	abandon  func()         // ends its Prepare
	snapshot *snapshot.Snapshot
	log      *output.Log          // of the program; nil: nothing is captured
	unseen   bool                 // the log says that its workers cannot be seen to accept
	told     []program.ReportKind // what was reported of workers that are not ready
}

// prepare resolves the snapshot of a generation and runs its preflight, both off the loop: files, the user database and
// the preflight may be slow.
func (p *runner) prepare(cg *program.Generation) {
	ctx, cancel := context.WithCancel(p.s.ctx)
	g := &resources{number: cg.Number, abandon: cancel, log: p.capture.of(cg.Config)}
	p.generations[cg.Number] = g
	p.s.sweep(keysOf(p.listeners)...) // a version on trial has no client before it serves
	var before []*socket.Lane
	if goes := p.core.GivesWay(cg); goes != nil && p.generations[goes.Number] != nil {
		before = p.generations[goes.Number].lanes
	}
	var err error
	g.lanes, err = p.s.table.Hold(p.listeners, len(cg.Slots), before)
	work := preparation{p.s.disks, p.s.Launcher, cg.Config, g.log, p.capture.errors}
	p.s.later(func() func() {
		defer cancel()
		if err != nil {
			return func() { p.prepared(g, nil, &program.Failure{Step: program.StepPrepare, Reason: err.Error()}) }
		}
		snap, failure := work.gather(ctx)
		return func() { p.prepared(g, snap, failure) }
	})
}

// prepared tells the core, in the loop, what prepare has found. The generation may be gone by then.
func (p *runner) prepared(g *resources, snap *snapshot.Snapshot, failure *program.Failure) {
	g.snapshot = snap
	if p.generations[g.number] != g { // gone meanwhile
		p.closeFiles(snap)
		return
	}
	e := program.Prepared{Generation: g.number, Failure: failure,
		Steered:    slices.ContainsFunc(g.lanes, (*socket.Lane).Own),
		BesideUnit: slices.ContainsFunc(g.lanes, (*socket.Lane).BesideUnit)}
	for _, ln := range g.lanes {
		e.Sockets = max(e.Sockets, ln.Sockets())
	}
	p.step(e)
}

// closeFiles closes the log files of a snapshot that no worker needs any more. It does not wait.
func (p *runner) closeFiles(s *snapshot.Snapshot) {
	for _, f := range s.Files() {
		p.closeLog(f)
	}
}

const lookingUp = "looking up directory, user and environment"

// preparation is what the goroutine of prepare gets: nothing of it belongs to the loop. Its methods wait.
type preparation struct {
	disks    *foreign.Looks
	launcher ProcessLauncher
	config   *config.Program // as the generation begins: scale gives the generation another one meanwhile
	log      *output.Log     // of the program; nil: nothing is captured
	errors   *output.LogErrors
}

// gather makes the snapshot of a generation, and runs its preflight.
func (w preparation) gather(ctx context.Context) (*snapshot.Snapshot, *program.Failure) {
	snap, err := bounded(ctx, w.disks, w.config.Name, lookingUp,
		func() (*snapshot.Snapshot, error) { return snapshot.LookUp(w.config) })
	if snap == nil {
		snap = &snapshot.Snapshot{}
	}
	if err == nil {
		err = w.openLogs(ctx, snap)
	}
	if err != nil {
		return snap, &program.Failure{Step: program.StepPrepare, Reason: err.Error()}
	}
	return snap, w.preflight(ctx, snap)
}

// preflight runs reload.preflight. A failure of what the workers would be started with has the step StepPrepare; a
// failure of the command itself has its own.
func (w preparation) preflight(ctx context.Context, snap *snapshot.Snapshot) *program.Failure {
	c := w.config
	if len(c.Reload.Preflight) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Ready.Timeout,
		fmt.Errorf("not finished within %s", c.Ready.Timeout))
	defer cancel()
	spec := snap.Preflight(c)
	if w.log != nil {
		spec.Captured = w.log.Of(0)
	}
	err := w.launcher.Run(ctx, spec)
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*worker.RunError](err)
	switch {
	case ok && e.Exited.Step != "" && e.Exited.Step != spawn.StepExec:
		// what a worker would be started with is wrong, and the preflight did not run
		return &program.Failure{Step: program.StepPrepare, Reason: e.Reason()}
	case ok:
		return &program.Failure{Step: program.StepPreflight, Reason: e.Reason(), Tail: e.Exited.Tail}
	}
	return &program.Failure{Step: program.StepPreflight, Reason: err.Error()}
}

// workerSpec is what a worker of this generation is started with. version is what it is a worker of: another generation
// if it is an heir, with its configuration; but its sockets and files are those of this generation.
func (g *resources) workerSpec(version *resources, c *config.Program, w *program.Worker) worker.Spec {
	seat := g.seat(w)
	for _, ln := range g.lanes {
		l := ln.Listener
		seat.FDs = append(seat.FDs, ln.FD(w.Slot))
		seat.Sockets = append(seat.Sockets, dialect.Passed{Name: l.Name, Address: l.Address, Starter: l.StarterName})
		seat.Binds = append(seat.Binds, boundByProgram(l, ln.Address()))
		if number, is := ln.QUIC(); is {
			seat.Lane = strconv.Itoa(number)
		}
	}
	spec := version.snapshot.Worker(c, seat)
	spec.Stdout, spec.Stderr = g.snapshot.Stdout, g.snapshot.Stderr
	if g.log != nil {
		spec.Captured = g.log.Of(w.Number)
	}
	return spec
}

func (g *resources) seat(w *program.Worker) snapshot.Seat {
	return snapshot.Seat{Generation: g.number, Slot: w.Slot}
}

// boundByProgram is where a program that opens its own port binds to get a listener, which is bound at the given
// address.
func boundByProgram(l socket.Resolved, bound string) bind.Claim {
	a := bind.Claim{Network: "tcp"}
	at := l.Binds
	switch {
	case at.IsUnix():
		return bind.Claim{Network: "unix", Path: at.Path}
	case l.Address.IsUnix():
		return bind.Claim{Network: "unix", Path: l.Address.Path}
	case l.Address.IsUDP():
		a.Network = "udp"
	}
	if at == (socket.Address{}) {
		a.At, _ = netip.ParseAddrPort(bound) //nolint:errcheck // an address that is not open fits nothing
		return a
	}
	ip := netip.IPv6Unspecified()
	if strings.EqualFold(at.Host, "localhost") {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	} else if at.Host != "" {
		ip, _ = netip.ParseAddr(at.Host) //nolint:errcheck // the configuration was checked
	}
	a.At = netip.AddrPortFrom(ip.Unmap(), at.Port)
	return a
}

// widener returns the Widen of a worker.Spec: it makes the socket of a UDP listener one of IPv6, for a worker that
// binds such a socket. See socket.Lane.Widen.
func (p *runner) widener(g *resources, slot int) func(context.Context, string) error {
	return func(ctx context.Context, listener string) error {
		_, err := askNow(ctx, p.s.mailbox, func() (struct{}, error) {
			i := g.listener(listener)
			if i < 0 || p.generations[g.number] != g {
				return struct{}{}, errors.New("its generation is gone")
			}
			return struct{}{}, g.lanes[i].Widen(slot)
		})
		return err
	}
}

// dialer returns the Dial of a worker.Spec: it connects a probe to the socket that the worker in a slot of a generation
// has of a listener. No other generation answers, whichever generation serves.
func (p *runner) dialer(g *resources, slot int) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, listener string) (net.Conn, error) {
		// what has begun must end, also if nobody wants it any more
		probe, err := askNow(context.WithoutCancel(ctx), p.s.mailbox,
			func() (*socket.Probe, error) { return p.probe(g, slot, listener) })
		if err != nil {
			return nil, err
		}
		end := sync.OnceFunc(func() { p.s.post(probe.End) })
		conn, err := probe.Dial(ctx)
		if err != nil {
			end()
			return nil, err
		}
		return &probeConn{conn, end}, nil
	}
}

// probe opens a way to the socket of one slot, in the loop. It returns ready.Unreachable where no way leads to this
// socket alone.
func (p *runner) probe(g *resources, slot int, listener string) (*socket.Probe, error) {
	if p.generations[g.number] != g {
		return nil, errors.New("its generation is gone")
	}
	i := g.listener(listener)
	if i < 0 {
		return nil, &ready.Unreachable{Err: errors.New("its generation has no listener " + listener)}
	}
	if why, _ := p.s.table.WhyShared(g.lanes[i].Listener); why != "" {
		return nil, &ready.Unreachable{Err: errors.New(
			"no probe can reach one generation on the listener " + listener + ", which is shared: " + why)}
	}
	return g.lanes[i].Probe(slot)
}

// listener returns the place of a listener by its name; -1: the generation has no such listener.
func (g *resources) listener(name string) int {
	return slices.IndexFunc(g.lanes, func(ln *socket.Lane) bool { return ln.Listener.Name == name })
}

// probeConn is the connection of a probe. Once it is closed, the kernel sends nothing more to the worker because of it.
type probeConn struct {
	net.Conn
	end func()
}

// NetConn returns the connection itself.
func (c *probeConn) NetConn() net.Conn { return c.Conn }

func (c *probeConn) Close() error {
	err := c.Conn.Close()
	c.end()
	return err
}

// How long a disk that hangs may delay a reload, the end of a program's log, and an upgrade. After that time the reload
// or the upgrade fails.
const (
	logOpenTimeout  = 10 * time.Second
	logEndTimeout   = 5 * time.Second
	logFlushTimeout = 2 * time.Second
)

// within returns a context that ends after timeout, and whose cause says so.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not within %s", timeout))
}

// capture is the log that receives the captured streams of a program. All generations share it.
type capture struct {
	log    *output.Log     // nil: nothing is captured
	ended  <-chan struct{} // closed when the file of the log before is complete; nil: there was none
	errors *output.LogErrors

	orphans *snapshot.Snapshot // what the orphans of the program write to; nil: it has none that speak
}

// of returns the log for a generation with this configuration; nil: the generation captures nothing.
func (c *capture) of(p *config.Program) *output.Log {
	if !p.Captures() {
		return nil
	}
	if c.log == nil {
		c.log = output.NewLog(c.errors, c.ended)
	}
	return c.log
}

// openLogs opens the log files of a generation.
func (w preparation) openLogs(ctx context.Context, snap *snapshot.Snapshot) error {
	ctx, cancel := within(ctx, logOpenTimeout)
	defer cancel()
	return snap.OpenLogs(ctx, w.config, w.log, w.errors)
}

// keepLogging continues with the log files of the previous image; for captured streams, with the file of the newest
// generation that was prepared.
func (p *runner) keepLogging() {
	newest := 0
	for _, cg := range p.core.Generations() {
		g := p.generations[cg.Number]
		if g == nil {
			continue
		}
		g.snapshot.UseLogs(cg.Config, p.capture.errors)
		g.log = p.capture.of(cg.Config)
		if g.log != nil && cg.Number > newest {
			newest = cg.Number
			g.log.UseFile(g.snapshot.LogFile(cg.Config))
		}
	}
}

// logFiles lists the log files that the program writes now.
func (p *runner) logFiles() []*output.LogFile {
	files := slices.Clone(p.capture.orphans.Files())
	if p.capture.log != nil && p.capture.log.File() != nil {
		files = append(files, p.capture.log.File())
	}
	for _, g := range p.generations {
		files = append(files, g.snapshot.Files()...)
	}
	return files
}

// endUnusedLog ends the log of the program if no generation writes to it and the next one will not either. Until then a
// person can read the last lines of a program that cannot start, or was stopped.
func (p *runner) endUnusedLog() {
	if p.core.Config.Captures() {
		return
	}
	for _, g := range p.generations {
		if g.log != nil {
			return
		}
	}
	p.endLog()
}

// endLog ends the log of the program.
func (p *runner) endLog() {
	if log := p.capture.log; log != nil {
		if file := log.End(); file != nil {
			p.closeLog(file)
		}
		p.capture.log, p.capture.ended = nil, log.Done()
	}
}

// closeLog ends a log file that no worker writes to any more. It does not wait.
func (p *runner) closeLog(f *output.LogFile) {
	log := p.log
	p.s.running.Go(func() {
		ctx, cancel := within(context.Background(), logEndTimeout)
		defer cancel()
		if err := f.Close(ctx); err != nil {
			log.Error("output of workers is lost", zap.Error(err))
		}
	})
}

package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/ready"
)

// world is what outlives a master: the processes and the file-descriptor store. The current master may die in any call
// to it.
type world struct {
	bare
	config    *config.Config
	processes []*fakeProcess
	store     fakeStore
	slow      bool // systemd does not read
	room      int  // messages that its socket still takes
	writable  chan struct{}
	pidfds    map[string]*fakeProcess
	null      map[string]int // stand for the descriptors of any process, by kind
	patience  int            // calls until the master dies; 0: it does not die
	meanwhile *fakeProcess   // the process that exits while there is no master; nil: none
	both      bool           // a process exited meanwhile: maybe a replacement whose old worker was to stop already
	late      bool           // a master has died with unsent messages, so the next one lacks their contents
	ending    bool           // everything is being stopped
	clients   []int          // connections from outside that are open, or wait
	torn      int            // how much of a batch of the record a dying master still writes, in thousandths
	faults    []string
	log       []string
	begun     map[any]bool // generations of which somebody was told that they begin

	order atomic.Int64 // tells the race detector about the order that synctest guarantees

	super *Supervisor
	hup   chan siginfo.Caught
	usr2  chan siginfo.Caught
	stop  chan siginfo.Caught
	over  chan struct{}       // closed when the master's loop has ended
	left  bool                // … by itself
	next  *record.Inheritance // … to execute a new image, which gets this
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
	w.note("FAULT: "+format, args...)
}

func (w *world) touch() { w.order.Add(1) }

// call is the first step of every call of the master.
func (w *world) call(what string) {
	w.touch()
	if w.patience == 0 {
		return
	}
	if w.patience--; w.patience == 0 {
		w.note("the master dies before it can %s", what)
		runtime.Goexit()
	}
}

// fakeProcess is a worker process.
type fakeProcess struct {
	*world
	pid                        int
	generation                 string
	sockets                    []uint64 // that it accepts from
	hold                       *hold    // of the living master; nil: no master knows the process
	execed, ready, ended, told bool
	read                       bool // READY=1 has been read from its socket
	unheard                    bool // its master lacks its socket, which was not sent in time
}

// hold is what one master knows about a process.
type hold struct {
	*fakeProcess
	post    func(life.Event)
	running bool             // the master knows that the command runs
	ready   bool             // … and is ready
	pending []worker.Pending // signals that wait for that
	last    chan struct{}    // closed when the last event was taken
}

func (p *fakeProcess) say(e life.Event) {
	if p.hold != nil {
		p.hold.tell(e)
	}
	synctest.Wait()
}

// execs: the command runs. The master learns this from the end of the report.
func (p *fakeProcess) execs() {
	p.note("%s runs", p)
	p.execed = true
	if p.hold != nil {
		p.hold.runs()
	}
	synctest.Wait()
}

func (h *hold) runs() {
	h.running = true
	for _, s := range h.pending {
		h.gets(s.Signal)
	}
	h.pending = nil
	h.tell(life.Spawned{PID: h.pid})
}

// tell posts an event after the earlier ones.
func (h *hold) tell(e life.Event) {
	before, done := h.last, make(chan struct{})
	h.last = done
	go func() {
		if before != nil {
			<-before
		}
		h.post(e)
		close(done)
	}()
}

func (p *fakeProcess) becomesReady() {
	p.note("%s is ready", p)
	p.ready = true
	if p.unheard {
		return
	}
	if p.hold != nil {
		p.hold.ready = true
	}
	p.say(life.ReadySaid{})
}

func (p *fakeProcess) ends() {
	p.note("%s ends", p)
	p.ended = true
	p.say(life.Exited{PID: p.pid, Known: true})
}

func (p *fakeProcess) String() string {
	return fmt.Sprintf("process %d of generation %s", p.pid, p.generation)
}

// firstStart reports whether nothing has served yet: a first generation that fails is removed as a whole.
func (w *world) firstStart() bool {
	for _, p := range w.super.programs {
		return p.core.Serving == nil
	}
	return true
}

// serves reports whether clients can rely on the process.
func (p *fakeProcess) serves() bool { return p.ready && !p.ended && !p.told }

func (h *hold) Signal(sig syscall.Signal, _ bool) error {
	h.call(fmt.Sprintf("send %s to %s", sig, h))
	switch {
	case sig == syscall.SIGCONT: // it was not stopped
	case sig == syscall.SIGKILL:
		h.gets(sig)
		h.ended = true
		h.tell(life.Exited{PID: h.pid, Known: true})
	case h.running:
		h.gets(sig)
	default:
		h.pending = append(h.pending, worker.Pending{Signal: sig})
	}
	return nil
}

func (h *hold) Stop(sig syscall.Signal, group bool) error { return h.Signal(sig, group) }

func (p *fakeProcess) gets(sig syscall.Signal) {
	p.note("%s gets %s", p, sig)
	alone := p.serves() && !slices.ContainsFunc(p.processes, func(q *fakeProcess) bool { return q != p && q.serves() })
	if alone && !p.ending && !p.both && !p.firstStart() {
		p.fault("%s, the last one that serves, gets %s", p, sig)
	}
	if !p.told && !p.ending && !p.both && !p.late && !p.firstStart() {
		p.reachedByNobody()
	}
	if sig == syscall.SIGKILL && p.ready && !p.told {
		p.fault("%s is killed without having been told to stop", p)
	}
	p.told = true
}

func (h *hold) State() worker.State {
	h.call("write down " + h.String())
	if h.ended {
		return worker.State{}
	}
	return worker.State{PID: h.pid, Running: h.running, Ready: h.ready, Pending: h.pending}
}

func (h *hold) Recorded(life.Event) {
	h.touch()
	h.read = h.ready
}

func (h *hold) Descriptors() map[string]int {
	h.touch()
	fds := map[string]int{}
	if h.ended {
		return fds
	}
	for _, kind := range []string{worker.FDProcess, worker.FDNotify} {
		fds[kind] = h.null[kind]
	}
	if !h.running {
		fds[worker.FDReport] = h.null[worker.FDReport]
	}
	return fds
}

func (h *hold) Duplicate(kind string) (int, error) {
	return unix.FcntlInt(uintptr(h.null[kind]), unix.F_DUPFD_CLOEXEC, 0)
}

func (h *hold) Memory(uint64) (uint64, error)            { return 0, nil }
func (h *hold) Probe(context.Context, ready.Check) error { return nil }
func (h *hold) Seen() string                             { return "" }
func (h *hold) Serves() bool                             { return true }
func (w *world) Run(context.Context, worker.Spec) error  { return nil }

// The next methods make the world an Upgrader.
func (w *world) Check() []string        { return nil }
func (w *world) Finish(context.Context) {}
func (w *world) Resume()                {}

func (w *world) Image() record.Image {
	return record.Image{Path: "new", Exec: func(_ string, _, env []string) error {
		w.call("execute a new image")
		w.note("the master executes a new image")
		h, err := record.Read(env, nil)
		if err != nil || len(h.Problems) > 0 {
			w.fault("the record cannot be read: %v %v", err, h.Problems)
		}
		w.next = h
		runtime.Goexit()
		return nil
	}}
}

func (w *world) Start(s worker.Spec, post func(life.Event)) Handle {
	w.call("start a process")
	p := &fakeProcess{world: w, pid: noProcess + len(w.processes)}
	p.hold = &hold{fakeProcess: p, post: post}
	for _, kv := range s.Environment {
		if v, ok := strings.CutPrefix(kv, "SUPERVISORD_GENERATION="); ok {
			p.generation = v
		}
	}
	p.accepts(s)
	w.note("%s starts", p)
	w.processes = append(w.processes, p)
	return p.hold
}

func (w *world) Adopt(a worker.Adoption, post func(life.Event)) Handle {
	p := w.processes[a.State.PID-noProcess]
	w.note("%s is adopted", p)
	p.accepts(a.Spec)
	p.hold = &hold{fakeProcess: p, post: post, running: a.State.Running, ready: a.State.Ready, pending: a.State.Pending}
	for kind, fd := range a.Descriptors {
		if fd != w.null[kind] {
			unix.Close(fd)
		}
	}
	_, known := a.Descriptors[worker.FDProcess]
	_, reports := a.Descriptors[worker.FDReport]
	_, heard := a.Descriptors[worker.FDNotify]
	if !known {
		p.hold.ended = true
		p.hold.tell(life.Exited{PID: p.pid, Step: "adopt", Unadopted: true})
		return p.hold
	}
	if p.unheard = !heard && !a.State.Ready; p.unheard && !w.late {
		w.fault("%s is adopted, but no master learns that it is ready", p)
	}
	if !a.State.Running && !reports {
		if !w.late {
			w.fault("%s is adopted, and nothing will tell that it runs", p)
		}
		p.execed = true
	}
	if p.ended {
		p.hold.tell(life.Exited{PID: p.pid, Known: true})
		return p.hold
	}
	if p.execed {
		p.hold.runs()
	}
	switch {
	case p.hold.ready, p.ready && !p.read && heard: // read: no longer in its socket
		p.hold.ready = true
		p.hold.tell(life.ReadySaid{})
	case p.ready && heard:
		w.fault("%s is ready, but no master knows", p)
	}
	return p.hold
}

// manager is the view of the world as systemd.
type manager struct{ *world }

func (w *world) StoreFD(name string, fds ...int) error {
	w.call("store " + name)
	if err := w.message(); err != nil {
		return err
	}
	if err := w.store.StoreFD(name, fds...); err != nil {
		return err
	}
	w.pidfd(name)
	w.call("continue after it has stored " + name)
	return nil
}

// message is a message that systemd receives even if the master dies.
func (w *world) message() error {
	if w.slow && w.room == 0 {
		return systemd.ErrBusy
	}
	if w.slow {
		w.room--
	}
	return nil
}

// reads makes room for n messages.
func (w *world) reads(n int) {
	w.note("systemd reads %d messages", n)
	w.room += n
	select {
	case w.writable <- struct{}{}:
	default:
	}
	synctest.Wait()
}

func (w *world) Writable() <-chan struct{} { return w.writable }

// pidfd notes which process a pidfd belongs to.
func (w *world) pidfd(name string) {
	for _, p := range w.super.programs {
		for number, h := range p.workers {
			if name == fmt.Sprintf("w.%s.%d", p.core.Name, number) {
				w.pidfds[name] = h.Handle.(*hold).fakeProcess
			}
		}
	}
}

func (w *world) RemoveFD(name string) error {
	w.call("remove " + name)
	if err := w.message(); err != nil {
		return err
	}
	if p := w.pidfds[name]; p != nil && !p.ended {
		w.fault("the store loses the pidfd of %s, which lives", p)
	}
	w.store.RemoveFD(name) //nolint:errcheck // it does not fail
	delete(w.pidfds, name)
	w.call("continue after it has removed " + name)
	return nil
}

func (w *world) Ready() error                      { w.call("say that it is ready"); return nil }
func (w *world) Stopping() error                   { return nil }
func (w *world) Status(string) error               { w.call("tell its status"); return nil }
func (w *world) Watchdog() error                   { return nil }
func (w *world) ExtendTimeout(time.Duration) error { return nil }
func (w *world) WatchdogInterval() time.Duration   { return 0 }

// witness hears the log of the masters. A number of a generation that it was told is that generation's, over every
// death: who has asked for a reload waits for the outcome of this number.
type witness struct {
	zapcore.LevelEnabler
	*world
}

func (l witness) With([]zapcore.Field) zapcore.Core { return l }
func (l witness) Sync() error                       { return nil }

func (l witness) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return c.AddCore(e, l)
}

func (l witness) Write(_ zapcore.Entry, fields []zapcore.Field) error {
	said := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(said)
	}
	if said.Fields["event"] == string(program.TrialBegan) {
		number := said.Fields["generation"]
		if l.begun[number] {
			l.fault("generation %d begins twice", number)
		}
		l.begun[number] = true
		l.call(fmt.Sprintf("continue after it has said that generation %d begins", number))
	}
	return nil
}

// live starts a master: the first one, or one that continues from a handover.
func (w *world) live(h *record.Inheritance) {
	w.super = New(Options{Launcher: w, Systemd: manager{w}, Upgrader: w, Log: zap.New(witness{zapcore.InfoLevel, w}),
		Load: func() (*config.Config, error) { return w.config, nil }})
	w.hup, w.usr2, w.stop, w.over = make(chan siginfo.Caught, 1), make(chan siginfo.Caught, 1), make(chan siginfo.Caught,
		1), make(chan struct{})
	go func() {
		w.touch()
		defer close(w.over)
		w.endUnknown(h)
		var err error
		if h.Programs() {
			w.super.Restore(h)
		} else {
			err = w.super.Start(w.config, h)
		}
		if err == nil {
			err = w.super.Run(Signals{Reload: w.hup, Upgrade: w.usr2, Stop: w.stop})
		}
		if err != nil {
			w.fault("the master gives up: %v", err)
		}
		w.left = true
	}()
	synctest.Wait()
}

// handover is what systemd gives to the next master.
func (w *world) handover() *record.Inheritance {
	h, err := record.Read(nil, w.store.copies)
	if err != nil || len(h.Problems) > 0 {
		w.fault("the record cannot be read: %v %v", err, h.Problems)
	}
	return h
}

// tear leaves the beginning of a batch at the end of the record, as a master does that dies while it writes.
func (w *world) tear() {
	for _, name := range []string{"state.a", "state.b"} {
		for _, fd := range w.store[name] {
			text, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", fd))
			last := bytes.LastIndex(text, []byte("\nsupervisord-record ")) + 1
			if err == nil && last > 0 {
				_, err = unix.Pwrite(fd, text[last:last+w.torn*(len(text)-last)/1000], int64(len(text)))
			}
			if err != nil {
				w.fault("the record cannot be torn: %v", err)
			}
		}
	}
}

// checkKept: what is kept of the record says the same as the whole record. It is for the loop.
func (w *world) checkKept() {
	if w.slow || w.super.store.Busy() {
		return
	}
	kept, err := record.Read(nil, w.store.contents)
	r, errNow := record.Rehearse(recordSource{w.super})
	if err != nil || errNow != nil || len(kept.Problems) > 0 || kept.Record == nil {
		w.fault("the record cannot be read: %v %v %v", err, errNow, kept.Problems)
		return
	}
	defer r.Close()
	whole, err := record.ReadRehearsal(r.Descriptors()[0])
	if err != nil {
		w.fault("the whole record cannot be read: %v", err)
		return
	}
	whole.Record.Descriptors, whole.Record.Clock = nil, kept.Record.Clock
	if !reflect.DeepEqual(kept.Record, whole.Record) {
		is, _ := json.Marshal(kept.Record)
		want, _ := json.Marshal(whole.Record)
		at := 0
		for at < min(len(is), len(want)) && is[at] == want[at] {
			at++
		}
		w.fault("the record says …%.300s and not …%.300s", is[max(0, at-100):], want[max(0, at-100):])
	}
	if err := canContinue(whole); err != nil {
		w.fault("an upgrade would be refused: %v", err)
	}
}

// endUnknown stops the processes without any descriptor in the handover, as Orphans does.
func (w *world) endUnknown(h *record.Inheritance) {
	for _, p := range w.processes {
		if p.ended || slices.Contains(h.PIDs(), p.pid) && w.sent(h, p) {
			continue
		}
		w.note("%s is left over", p)
		switch {
		case !p.serves():
		case w.sent(h, p):
			w.fault("%s serves, and the state does not know it", p)
		default:
			w.both = true // no master could have known
		}
		p.ended = true
	}
}

// sent reports whether the pidfd of a process was handed over.
func (w *world) sent(h *record.Inheritance, p *fakeProcess) bool {
	if h.Upgrade {
		return true
	}
	for name := range w.store {
		if w.pidfds[name] == p {
			return true
		}
	}
	return false
}

// bury releases what the kernel would release of a dead master.
func (w *world) bury() {
	for _, p := range w.super.programs {
		if p.alarm != nil {
			p.alarm.timer.Stop()
		}
	}
	w.super.cancel()
	if !w.left {
		close(w.super.done)
	}
	w.super.running.Wait()
	w.late = w.late || w.super.store.Busy() && w.next == nil
	if w.next == nil {
		w.super.table.Close() //nolint:errcheck // as dead as it
	}
	for _, p := range w.processes {
		p.hold = nil
	}
	synctest.Wait()
}

// goOn starts the next master if the previous one has died.
func (w *world) goOn() {
	w.touch()
	synctest.Wait()
	for {
		select {
		case <-w.over:
			w.bury()
			w.patience = 0
			if h := w.next; h != nil {
				w.next = nil
				w.live(h)
				continue
			}
			if w.meanwhile != nil && !w.meanwhile.ended {
				w.meanwhile.ends()
				w.both = true
			}
			w.meanwhile = nil
			w.writable = make(chan struct{}, 1)
			w.tear()
			w.live(w.handover())
		default:
			return
		}
	}
}

// which returns the nth process of a kind, modulo their number.
func (w *world) which(n int, kind func(*fakeProcess) bool) *fakeProcess {
	var of []*fakeProcess
	for _, p := range w.processes {
		if !p.ended && kind(p) {
			of = append(of, p)
		}
	}
	w.touch()
	if len(of) == 0 {
		return nil
	}
	return of[n%len(of)]
}

func forked(p *fakeProcess) bool   { return !p.execed }
func starting(p *fakeProcess) bool { return p.execed && !p.ready && !p.told }
func toldToGo(p *fakeProcess) bool { return p.told }

// move is a step of a random history; n is its argument.
type move func(w *world, n int)

// some is a move of the nth process of a kind, if there is one.
func some(kind func(*fakeProcess) bool, does func(*fakeProcess)) move {
	return func(w *world, n int) {
		if p := w.which(n, kind); p != nil {
			does(p)
		}
	}
}

var (
	becomesReady = some(starting, (*fakeProcess).becomesReady)
	goes         = some(toldToGo, (*fakeProcess).ends)
	execs        = some(forked, (*fakeProcess).execs)
)

// moves are drawn with the same probability, so those that matter most stand here more than once.
var moves = []move{
	(*world).reloads, (*world).reloads, becomesReady, becomesReady, becomesReady, execs, execs, goes, (*world).pass,
	some(starting, (*fakeProcess).ends), some((*fakeProcess).serves, (*fakeProcess).ends),
	func(w *world, n int) { w.patience = 1 + n }, func(w *world, n int) { w.patience = 1 + n },
	func(w *world, n int) { w.meanwhile = w.which(n, func(*fakeProcess) bool { return true }) },
	(*world).upgrades, (*world).slows, (*world).reads, (*world).canary,
	func(w *world, _ int) { w.connects() }, func(w *world, _ int) { w.connects() },
	func(w *world, _ int) { w.acceptsAll() },
	func(w *world, _ int) { w.act(program.Promote{}) },
	func(w *world, n int) { w.act(program.Promote{Share: 1 + 999*n%9999}) },
	func(w *world, _ int) { w.act(program.Abort{}) },
	func(w *world, _ int) { w.act(program.Rollback{}) },
	func(w *world, n int) { w.act(program.Pause{For: time.Duration(1+n) * time.Second}) },
}

func (w *world) reloads(int) {
	w.note("HUP")
	select {
	case w.hup <- siginfo.Caught{Number: syscall.SIGHUP}:
	default:
	}
}

func (w *world) pass(n int) {
	w.touch()
	time.Sleep(time.Duration(1+n) * time.Second)
}

func (w *world) upgrades(int) {
	w.note("USR2")
	w.usr2 <- siginfo.Caught{Number: syscall.SIGUSR2}
	synctest.Wait()
}

func (w *world) slows(int) {
	w.slow = !w.slow
	w.note("systemd is slow: %t", w.slow)
	w.room = 0
	w.reads(0)
}

func (w *world) canary(n int) {
	o := ReloadOptions{Share: 100 * (1 + n)}
	if n%2 == 0 {
		o = ReloadOptions{Canary: 1}
	}
	w.ask(fmt.Sprintf("%+v", o), func(ctx context.Context, super *Supervisor) error {
		_, err := super.Reload(ctx, o)
		return err
	})
}

// make makes a move, and looks whether all is well where nothing else happens.
func (w *world) make(m move, n int) {
	m(w, n)
	w.goOn()
	_, _ = askNow(w.super.ctx, w.super.mailbox, func() (struct{}, error) {
		w.touch()
		w.reachesWhoServes()
		if w.patience == 0 && n%4 == 0 { // otherwise it would die in the look; and not always, because that takes time
			w.checkKept()
		}
		return struct{}{}, nil
	})
	synctest.Wait()
	w.touch()
}

// accepts remembers which sockets a process has.
func (p *fakeProcess) accepts(s worker.Spec) {
	p.sockets = nil
	for _, fd := range s.Sockets {
		p.sockets = append(p.sockets, inodeOf(fd))
	}
}

func inodeOf(fd int) uint64 {
	var st unix.Stat_t
	_ = unix.Fstat(fd, &st)
	return st.Ino
}

// ask makes a request, which a master that dies never answers.
func (w *world) ask(what string, request func(context.Context, *Supervisor) error) {
	w.touch()
	w.note("asked for %s", what)
	super := w.super
	go request(super.ctx, super) //nolint:errcheck // it may be refused
	synctest.Wait()
	w.touch()
}

func (w *world) act(e program.Event) {
	w.ask(fmt.Sprintf("%+v", e), func(ctx context.Context, super *Supervisor) error {
		_, err := super.Act(ctx, "web", e)
		return err
	})
}

// listens returns the listening sockets that the living master has.
func (w *world) listens() []int {
	p := w.super.programs["web"]
	if p == nil || len(p.listeners) == 0 {
		return nil
	}
	return w.super.table.FDs(p.listeners[0].Key())
}

// dial begins to connect from outside; -1: nothing is bound.
func (w *world) dial() int {
	sockets := w.listens()
	if len(sockets) == 0 {
		return -1
	}
	fd, _ := dial(sockets[0])
	return fd
}

// connects is a client with a request.
func (w *world) connects() {
	w.touch()
	if fd := w.dial(); fd >= 0 {
		unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 20)
		_, _ = unix.Write(fd, []byte("q"))
		w.note("a client connects")
		w.clients = append(w.clients, fd)
	}
}

// acceptsAll takes every connection out of the queues, and ends them all.
func (w *world) acceptsAll() {
	w.touch()
	w.note("%d clients go", len(w.clients))
	for _, fd := range w.clients {
		unix.Close(fd)
	}
	w.clients = nil
	for _, fd := range w.listens() {
		for queued(fd) {
			conn, _, err := unix.Accept(fd)
			if err != nil {
				break
			}
			unix.Close(conn)
		}
	}
}

func queued(fd int) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n == 1
}

// reached returns the listening socket that a new connection reaches; 0: none.
func (w *world) reached() uint64 {
	if p := w.super.programs["web"]; p == nil || !p.core.Paused.Until.IsZero() {
		return 0
	}
	client := w.dial()
	if client < 0 {
		return 0
	}
	defer unix.Close(client)
	if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(client), Events: unix.POLLOUT}}, 300); n == 0 {
		w.fault("nothing answers a new connection")
		return 0
	}
	mine, _ := unix.Getsockname(client)
	for _, fd := range w.listens() {
		for queued(fd) {
			conn, peer, err := unix.Accept(fd)
			if err != nil {
				break
			}
			if peer.(*unix.SockaddrInet4).Port == mine.(*unix.SockaddrInet4).Port {
				unix.Close(conn)
				return inodeOf(fd)
			}
			w.clients = append(w.clients, conn) // of another client: a worker has it in hand now
		}
	}
	return 0
}

// has lists the processes of a kind that accept from a socket.
func (w *world) has(socket uint64, kind func(*fakeProcess) bool) (of []*fakeProcess) {
	for _, p := range w.processes {
		if slices.Contains(p.sockets, socket) && kind(p) {
			of = append(of, p)
		}
	}
	return of
}

// reachedByNobody: p is told to stop. New connections must not reach it any more, unless others accept them.
func (p *fakeProcess) reachedByNobody() {
	at := p.reached()
	if at == 0 || !p.serves() || !slices.Contains(p.sockets, at) {
		return
	}
	if len(p.has(at, func(q *fakeProcess) bool { return q != p && q.serves() })) == 0 {
		p.fault("%s is told to stop, and new connections reach it and nobody else", p)
	}
}

// reachesWhoServes: a new connection reaches a process that serves, if one of the serving generation does.
func (w *world) reachesWhoServes() {
	p := w.super.programs["web"]
	if p == nil || p.core.Goal != program.Run || p.core.Serving == nil || w.both || w.late {
		return
	}
	for _, l := range p.status().Listeners {
		for _, ln := range l.Lanes {
			if got, want := int(ln.Share*program.Whole+0.5), p.share(ln.Generation); ln.Generation > 0 &&
				(got < want-1 || got > want+1) {
				w.fault("generation %d gets %d of 10,000 new connections, want %d", ln.Generation, got, want)
			}
		}
	}
	serving := func(q *fakeProcess) bool { return q.serves() && q.generation == fmt.Sprint(p.core.Serving.Number) }
	if !slices.ContainsFunc(w.processes, serving) {
		return
	}
	if at := w.reached(); at != 0 && len(w.has(at, (*fakeProcess).serves)) == 0 {
		w.fault("a new connection reaches nobody that serves, but %v",
			w.has(at, func(q *fakeProcess) bool { return !q.ended }))
	}
}

// continues lets the next thing happen, the nth. It reports whether anything was left to happen: if no process is to do
// something, nothing is looked at and no alarm is set, everything stays as it is.
func (w *world) continues(n int) bool {
	for _, m := range []struct {
		of func(*fakeProcess) bool
		move
	}{{forked, execs}, {starting, becomesReady}, {toldToGo, goes}} {
		if w.which(0, m.of) != nil {
			w.make(m.move, n)
			return true
		}
	}
	waits, _ := askNow(w.super.ctx, w.super.mailbox, func() (bool, error) {
		w.touch()
		p := w.super.programs["web"]
		return p.alarm != nil || len(p.quiet) > 0, nil
	})
	if waits {
		w.make((*world).pass, 9)
	}
	return waits
}

// settle lets everything finish and reports what is wrong then.
func (w *world) settle(workers int) {
	w.patience, w.slow = 0, false
	for _, m := range []move{
		(*world).reads, // a master that has waited for systemd may execute a new image, which gets what follows
		func(w *world, _ int) { w.act(program.Abort{}) },
		func(w *world, _ int) { w.act(program.Unpause{}) },
		func(w *world, _ int) { w.acceptsAll() },
		(*world).reloads,
	} {
		w.make(m, 0)
	}
	for steps := 0; w.continues(steps); steps++ {
		if steps == 200 {
			w.fault("it never comes to rest")
			break
		}
	}
	newest, n := 0, 0
	for _, p := range w.super.programs {
		newest = p.core.LastGeneration
	}
	for _, p := range w.processes {
		if p.ended {
			continue
		}
		n++
		if !p.serves() || p.generation != fmt.Sprint(newest) {
			w.fault("%s is still there: ready %t, told %t; the newest is %d", p, p.ready, p.told, newest)
		}
	}
	if n != workers {
		w.fault("%d processes, not %d", n, workers)
	}
}

// end stops the master and all its workers.
func (w *world) end() {
	w.ending = true
	w.stop <- siginfo.Caught{Number: syscall.SIGTERM}
	synctest.Wait()
	for p := w.which(0, toldToGo); p != nil; p = w.which(0, toldToGo) {
		p.ends()
	}
	for _, fd := range w.null {
		unix.Close(fd)
	}
	for _, fd := range w.clients {
		unix.Close(fd)
	}
	<-w.over
	for _, p := range w.processes {
		if !p.ended {
			w.fault("%s outlives the stop", p)
		}
	}
	for name := range w.store {
		if !socket.Exported(name) {
			w.fault("%s is left in the store", name)
		}
		w.RemoveFD(name) //nolint:errcheck // it is the end
	}
}

// descriptors are the records, sockets and /dev/null that this process has.
func descriptors() map[int]bool {
	all := map[int]bool{}
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		to, _ := os.Readlink(link)
		kept := to == os.DevNull || strings.HasPrefix(to, "socket:") || strings.HasPrefix(to, "/memfd:")
		if fd, err := strconv.Atoi(filepath.Base(link)); err == nil && kept {
			all[fd] = true
		}
	}
	return all
}

// closeOthers closes what dead masters had, as the kernel does.
func closeOthers(before map[int]bool) {
	for fd := range descriptors() {
		if !before[fd] {
			unix.Close(fd)
		}
	}
}

func TestDeathOfTheMasterAtAnyCallLosesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		defer closeOthers(descriptors())
		c := testProgram(t, "web")
		c.Workers = rapid.IntRange(1, 3).Draw(rt, "workers")
		c.Reload.Strategy = rapid.SampledFrom([]config.Strategy{config.All, config.Rolling}).Draw(rt, "strategy")
		if rapid.Bool().Draw(rt, "steered") {
			l := &c.Listen[0]
			l.Handover = socket.Steer
			l.PerSlot = c.Reload.Strategy == config.Rolling || rapid.Bool().Draw(rt, "per_slot")
			c.Drain.Timeout = time.Duration(rapid.IntRange(0, 1).Draw(rt, "timeout")) * 10 * time.Second
			c.Drain.Silence = time.Duration(rapid.IntRange(0, 1).Draw(rt, "silence")) * 100 * time.Millisecond
			c.Drain.Spread = time.Duration(rapid.IntRange(0, 1).Draw(rt, "spread")) * 3 * time.Second
			c.Reload.Keep = time.Duration(rapid.IntRange(0, 1).Draw(rt, "keep")) * 15 * time.Second
		}
		history := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) [2]int { // a move and its argument
			return [2]int{rapid.IntRange(0, len(moves)-1).Draw(rt, "move"), rapid.IntRange(0, 12).Draw(rt, "n")}
		}), 1, 40).Draw(rt, "history")
		w := &world{begun: map[any]bool{}, torn: rapid.IntRange(0, 999).Draw(rt, "torn"), config: configOf(c),
			store: fakeStore{}, pidfds: map[string]*fakeProcess{}, null: map[string]int{}}
		for _, kind := range []string{worker.FDProcess, worker.FDNotify, worker.FDReport} {
			var err error
			if w.null[kind], err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				rt.Fatal(err)
			}
		}
		synctest.Test(t, func(*testing.T) {
			w.writable = make(chan struct{}, 1)
			w.live(w.handover())
			for _, m := range history {
				w.make(moves[m[0]], m[1])
			}
			w.settle(c.Workers)
			w.end()
		})
		if len(w.faults) > 0 {
			rt.Fatalf("%s", strings.Join(w.log, "\n"))
		}
	})
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/cgroup"
	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/spawn"
)

// Worker is one started process, and what the process leaves behind when it is stopped. Its methods may be called from
// any goroutine, also after the end; they neither wait for the process nor call post. The Worker owns its pidfd and the
// descriptors on which the process speaks, and closes them before Exited.
type Worker struct {
	launcher *Launcher
	spec     Spec
	helper   bool               // a command of Run: no notify socket and no readiness
	life     context.Context    // until the process has ended
	over     context.CancelFunc // ends life
	post     func(life.Event)
	events   mailbag
	side     sync.WaitGroup // the pumps and the probe, which end before Exited is posted
	aside    foreign.Line   // reads and closes what the worker could make slow

	mu       sync.Mutex
	process  process
	channels channels
	ready    readiness
	pumps    []*output.Pump
	failure  *spawn.StepError
}

// process is what the kernel knows about a worker, with the State that goes into the record. Worker.mu guards it.
//
//	no process ─► forked ─► running ─► ended
//	(PID 0)                    └─► rest ─▲
//
// forked: the child goes through the steps before its exec, and FDReport is open. running: the command has been
// executed. rest: the first process has ended while it was stopped, and what it has started lives on: see Rest. ended:
// Exited is posted, or about to be, and the PID may belong to another process.
type process struct {
	State                   // without Carry
	pidfd     int           // -1: none. It is the Worker's until release, which waits for the last signal
	child     bool          // of this process, which reaps it; otherwise the pidfd tells of the end
	ended     bool          // no signal may be sent to PID any more
	rest      *rest         // what is known of Rest; nil if that is
	exit      *epoll.Source // the pidfd, while it is watched
	grace     *time.Timer   // until the status of a process that is not a child is given up
	unwatched int           // how often a descriptor could not be watched
	again     *time.Timer   // until KILL is sent again
}

// channels are where a worker speaks. Worker.mu guards them. The descriptors are the Worker's: takeChannels or drop
// closes them, on the goroutine of Worker.aside after the last reader, because closing can take as long as the worker
// likes (a socket in the queue of a socket, a pipe whose lock it holds).
type channels struct {
	open    map[string]*epoll.Source // by FDReport, FDNotify, FDPipe, FDBind
	adopted bool                     // they came from another image; only what answers them uses this
	drains  bool                     // DrainsItself was posted
	kept    bool                     // READY=1 stays in the kernel, and nothing after it is read, until Recorded
	begins  bool                     // … and so does the descriptor of the filter in the report
}

// readiness is how it is found out that the worker is ready. Worker.mu guards it.
//
//	nothing ─► delay or probe ─► the method says ready ─► somebody accepts ─► posted
//
// Each wait has one cancel; claimReady replaces that of the method by that of the look at who accepts.
type readiness struct {
	delay   *time.Timer
	cancel  context.CancelFunc // of the probe
	seen    string             // why the worker is not ready, as far as it can be seen
	strange string             // … and what is strange about it
	refused string             // why it did not get a listener that it wanted to bind
	look    *time.Timer        // until the next look for that
}

// newWorker returns a worker without a process. Its goroutine, live, does not run yet.
func newWorker(l *Launcher, spec Spec, post func(life.Event)) *Worker {
	w := &Worker{launcher: l, spec: spec, post: post, events: newMailbag()}
	w.process.pidfd, w.channels.open = -1, map[string]*epoll.Source{}
	w.life, w.over = context.WithCancel(context.Background())
	l.mu.Lock()
	l.alive++
	l.mu.Unlock()
	return w
}

// live is the goroutine of a worker, from the fork to the end. It is the only one that calls post, which may block.
func (w *Worker) live() {
	if err := w.spawn(); err != nil {
		w.events.put(life.Exited{Step: err.Step, Err: err})
	}
	w.postAll()
}

// postAll posts events up to Exited. Before Exited it waits for everything that uses the worker's spec, so that the
// caller may close the sockets in the spec when Exited comes.
func (w *Worker) postAll() {
	for {
		for _, e := range w.events.take() {
			exited, last := e.(life.Exited)
			if !last {
				w.post(e)
				continue
			}
			w.over()
			w.awaitSide()
			exited.Tail = w.tail()
			w.launcher.forget(w, exited.PID)
			w.post(exited)
			return
		}
	}
}

// sideTimeout is how long the end of a worker waits for its pumps and its probe. These do not wait themselves, but a
// system call of theirs may hang, and the program must learn of the end nevertheless.
const sideTimeout = 5 * time.Second

// awaitSide waits for the pumps and the probe, for sideTimeout at most.
func (w *Worker) awaitSide() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.side.Wait()
	}()
	timeout := time.NewTimer(sideTimeout)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
	}
}

// newPump reads from fd. A stream that is read although it is inherited is the stderr of a helper command, or that of a
// worker that another image of the supervisor started with another configuration.
func (w *Worker) newPump(fd int, o output.Destination, stream string) (*output.Pump, error) {
	var write func([]byte)
	switch {
	case o.Kind == output.Capture && w.spec.Captured != nil:
		write = func(b []byte) { w.spec.Captured(stream, w.process.PID, b) } // it was forked before anything is read
	case o.Kind == output.ToFile && o.File != nil:
		write = o.File.Put
	case o.Kind == output.Null, o.Kind == output.Capture:
		write = func([]byte) {}
	case stream == FDStdout:
		write = func(b []byte) { w.launcher.needs.Stdout.Write(b) }
	default:
		write = func(b []byte) { w.launcher.needs.Stderr.Write(b) }
	}
	return output.NewPump(fd, stream, write, w.launcher.gate)
}

// tail returns the last lines of the worker's stderr.
func (w *Worker) tail() []string {
	for _, p := range w.pumps {
		if p.Stream() == FDStderr {
			return p.Tail()
		}
	}
	return nil
}

// readReport reads what the new process reports until its exec. w.mu is held.
func (w *Worker) readReport() {
	if w.keepsFilter() {
		return
	}
	var buf [512]byte
	for before := len(w.process.Report); w.channels.open[FDReport] != nil; {
		n, filter, err := spawn.ReadReport(w.channels.open[FDReport].FD, buf[:])
		if filter >= 0 && w.channels.open[FDBind] != nil { // that of keepsFilter
			unix.Close(filter)
		} else {
			w.open(FDBind, filter)
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // nothing more for now
			if len(w.process.Report) > before {
				w.events.put(life.Changed{})
			}
			return
		case n > 0:
			w.process.Report = append(w.process.Report, buf[:n]...)
		default:
			w.drop(FDReport)
			w.reported()
		}
	}
}

// keepsFilter takes a duplicate of the filter's descriptor, if it has come, and leaves the report in the kernel until
// Recorded: if the supervisor dies before the record has the descriptor, the next one finds the descriptor in the
// report. With the last one closed, every bind(2) of the worker would fail with ENOSYS. w.mu is held.
func (w *Worker) keepsFilter() bool {
	report := w.channels.open[FDReport]
	if w.process.ended || report == nil || w.channels.open[FDBind] != nil {
		return false
	}
	fd := spawn.PeekFilter(report.FD)
	if fd < 0 {
		return false
	}
	w.open(FDBind, fd)
	w.channels.begins = true
	w.launcher.poll.Remove(report)
	w.events.put(life.Filtered{})
	return true
}

// reported acts on the whole report. w.mu is held.
func (w *Worker) reported() {
	runs, failure := spawn.ParseReport(w.process.Report, &w.spec.Execution)
	if len(w.process.Report) == 0 && !w.process.child && !w.process.ended {
		// the supervisor that started it has read the report and died before that was recorded; only the exec and the end
		// close the pipe
		runs = true
	}
	w.process.Report = nil
	if failure != nil {
		w.failure = failure
	}
	if runs {
		w.spawned()
	}
}

// spawned continues after the exec: it delivers the signals that waited, and begins to read the worker's messages. w.mu
// is held.
func (w *Worker) spawned() {
	w.process.Running = true
	w.events.put(life.Spawned{PID: w.process.PID})
	for _, d := range w.process.Pending {
		w.deliver(d) //nolint:errcheck // no caller waits for the answer any more
	}
	w.process.Pending = nil
	w.listen()
	w.attend(FDBind, w.answerBinds)
	w.awaitReady()
}

// collect ends a worker that is a zombie. Unless the worker was told to stop, collect kills its process group first:
// while the zombie pins the PID, the signal cannot hit another process.
func (w *Worker) collect(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.process.ended && !w.leavesRest() {
		unix.Kill(-pid, unix.SIGKILL)
	}
	status, ok := w.launcher.wait(pid)
	w.end(status, ok)
}

// lastWords is how long Exited waits for the last messages and lines of the worker.
const lastWords = time.Second

// finish ends a worker whose process is gone: what it said last is posted, and then Exited. w.mu is held.
func (w *Worker) finish(status syscall.WaitStatus, known bool) {
	if w.process.ended {
		return
	}
	w.process.ended = true
	w.over()
	e := life.Exited{PID: w.process.PID, Status: status, Known: known}
	if !w.process.Ready && w.ready.refused != "" && status.ExitStatus() > 0 {
		e.Hint = "; " + w.ready.refused
	}
	e.OOM = known && status.Signaled() && status.Signal() == syscall.SIGKILL && !w.process.Killed &&
		cgroup.OOMKilled(w.process.Group)
	w.launcher.groups.End(w.process.Group)
	w.readReport()
	if w.channels.open[FDReport] != nil { // some process has a copy of the other end, but the writer is dead
		w.reported()
	}
	w.stopReady()
	w.release()
	for _, p := range w.pumps {
		p.Finish()
	}
	w.channels.kept = false
	e = w.exited(e)
	post := sync.OnceFunc(func() { w.events.put(e) })
	late := time.AfterFunc(lastWords, post)
	w.aside.Do(func() {
		w.readRest()
		late.Stop()
		post()
	})
}

// readRest reads what the worker said last, and closes its channels. Processes that outlive it may have its filter.
func (w *Worker) readRest() {
	open := w.takeChannels()
	if fd, has := open[FDBind]; has {
		delete(open, FDBind)
		w.launcher.KeepFilter("", fd)
	}
	if fd, has := open[FDNotify]; has && w.process.Running {
		w.readLast(fd)
	}
	if fd, has := open[FDPipe]; has && w.process.Running {
		w.readPipe(fd)
	}
	for _, fd := range open {
		unix.Close(fd)
	}
}

// takeChannels takes away all descriptors on which the worker speaks, for the caller to close.
func (w *Worker) takeChannels() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	fds := map[string]int{}
	for name, s := range w.channels.open {
		w.launcher.poll.Remove(s)
		fds[name] = s.FD
	}
	clear(w.channels.open)
	return fds
}

// exited adds to e why the command did not run.
func (w *Worker) exited(e life.Exited) life.Exited {
	switch {
	case w.failure != nil:
		e.Step, e.Err = w.failure.Step, w.failure
	case !w.process.Running:
		e.Step, e.Err = spawn.StepStart, fmt.Errorf("%s before it could run", life.Ending(e.Status, e.Known))
	}
	return e
}

// release gives back what belongs to the process. w.mu is held.
func (w *Worker) release() {
	if w.process.exit != nil {
		w.launcher.poll.Remove(w.process.exit)
		w.process.exit = nil
	}
	for _, timer := range []*time.Timer{w.process.grace, w.process.again} {
		if timer != nil {
			timer.Stop()
		}
	}
	if w.process.pidfd >= 0 {
		unix.Close(w.process.pidfd)
		w.process.pidfd = -1
	}
	if w.process.NotifyPath != "" {
		w.launcher.notify.Unlink(w.process.NotifyPath)
	}
}

// open takes over a descriptor on which the worker speaks, and does not watch it yet; none if fd is negative. w.mu is
// held.
func (w *Worker) open(name string, fd int) {
	if fd >= 0 {
		w.channels.open[name] = &epoll.Source{FD: fd}
	}
}

// do calls f with w.mu.
func (w *Worker) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// locked makes a callback of the poller, which calls read with w.mu.
func (w *Worker) locked(read func()) func(uint32) { return func(uint32) { w.do(read) } }

// A source that cannot be watched, because the kernel has no memory or the user watches too many, is tried again so
// often, at this pause.
const (
	watchAttempts = 50
	watchPause    = 100 * time.Millisecond
)

// watch begins to watch one of the channels for events. If the kernel refuses for some time, watch kills the worker,
// which would seem to hang otherwise. watch and read are called with w.mu.
func (w *Worker) watch(name string, events uint32, read func()) {
	source := w.channels.open[name]
	if source == nil {
		return
	}
	watched, err := w.launcher.poll.Add(source.FD, events, w.locked(read))
	switch {
	case err == nil:
		w.channels.open[name] = watched
	case w.process.ended: // what it said last is read anyhow
	case w.process.PID == 0 || w.process.unwatched < watchAttempts:
		w.process.unwatched++
		time.AfterFunc(watchPause, func() {
			w.do(func() {
				if w.channels.open[name] == source {
					w.watch(name, events, read)
				}
			})
		})
	default:
		w.failure = spawn.Failed(spawn.StepWatch, err)
		w.deliver(Pending{Signal: syscall.SIGKILL, Group: true}) //nolint:errcheck // the failure is posted
	}
}

// attend calls read, without a lock and on the thread of w.aside, whenever one of the channels has something to read,
// and not again before read has returned. w.mu is held.
func (w *Worker) attend(name string, read func(fd int)) {
	w.watch(name, epoll.ReadableOnce, func() {
		s := w.channels.open[name]
		w.aside.Do(func() {
			w.mu.Lock()
			open := s != nil && w.channels.open[name] == s
			w.mu.Unlock()
			if open { // or else the number may be another file's
				read(s.FD)
				w.launcher.poll.Again(s)
			}
		})
	})
}

// drop ends the watch of one of the channels. The goroutine of w.aside closes the descriptor after the reader there has
// finished. w.mu is held.
func (w *Worker) drop(name string) {
	s := w.channels.open[name]
	if s == nil {
		return
	}
	w.launcher.poll.Remove(s)
	w.aside.Do(func() { unix.Close(s.FD) })
	delete(w.channels.open, name)
}

// measureWithin bounds the measuring of a worker's memory: a process can hold the lock that the kernel needs for it.
const measureWithin = 10 * time.Second

// Memory returns how much memory the worker and its descendants use, in bytes: of its control group if that has the
// memory controller, else proc.MemoryOfTree with this limit, which does not count orphaned descendants. Memory takes 10
// s at most, and ends with the worker.
func (w *Worker) Memory(limit uint64) (uint64, error) {
	w.mu.Lock()
	pid, there, group := w.process.PID, w.adoptable(), w.process.Group
	w.mu.Unlock()
	if !there {
		return 0, os.ErrProcessDone
	}
	if used, ok := cgroup.Memory(group); ok {
		return used, nil
	}
	type answer struct {
		used uint64
		err  error
	}
	ctx, cancel := context.WithTimeout(w.life, measureWithin)
	defer cancel()
	a, err := foreign.Look(ctx, &w.launcher.looks, w, func() answer {
		used, err := proc.MemoryOfTree(pid, limit)
		return answer{used, err}
	})
	return a.used, errors.Join(err, a.err)
}

// mailbag passes a worker's events, in order, to the goroutine that posts them. put never waits, so a slow receiver
// delays only its own worker. Of the events that a worker can repeat at will mailbag keeps the newest, so that the
// queue cannot grow without limit.
type mailbag struct {
	wake chan struct{}

	mu     sync.Mutex
	events []life.Event
}

func newMailbag() mailbag { return mailbag{wake: make(chan struct{}, 1)} }

// put adds an event, in place of an older one that it makes obsolete. It never waits.
func (q *mailbag) put(e life.Event) {
	q.mu.Lock()
	if i := q.older(e); i >= 0 {
		q.events[i] = e
	} else {
		q.events = append(q.events, e)
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// older returns the index of an event that e replaces, or -1. A worker that says that it is well does not take back
// that it is not.
func (q *mailbag) older(e life.Event) int {
	switch e.(type) {
	case life.Changed, life.StatusText, life.Extend, life.Watchdog:
	default:
		return -1
	}
	return slices.IndexFunc(q.events, func(have life.Event) bool {
		ill := have == life.Event(life.Watchdog{Trigger: true})
		return reflect.TypeOf(have) == reflect.TypeOf(e) && (!ill || have == e)
	})
}

// take waits for events and takes all there are.
func (q *mailbag) take() []life.Event {
	<-q.wake
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}

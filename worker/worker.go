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

// process is what the kernel knows about a worker. Worker.mu guards it.
//
//	no process ─► forked ─► running ─► ended
//	(pid 0)                    └─► rest ─▲
//
// forked: the child goes through the steps before its exec, and channels.report is open. running: the command has been
// executed. rest: the first process has ended while it was stopped, and what it has started lives on: see rest. ended:
// Exited is posted, or about to be, and the PID may belong to another process.
type process struct {
	pid       int // 0: not forked
	pidfd     int // -1: none
	child     bool
	running   bool          // the command was executed
	ended     bool          // no signal may be sent to pid any more
	early     []Pending     // signals that wait for running
	stop      Pending       // the step of the stop plan that was sent last; zero: none
	rest      *rest         // nil: the first process has not ended
	exit      *epoll.Source // the pidfd, while it is watched
	grace     *time.Timer   // until the status of a process that is not a child is given up
	group     string        // the directory of its control group; "": it has none
	killed    bool          // KILL was sent
	unwatched int           // how often a descriptor could not be watched
	again     *time.Timer   // until KILL is sent again
}

// channels are where a worker speaks. Worker.mu guards them. The descriptors are the Worker's: takeChannels or drop
// closes them, on the goroutine of Worker.aside after the last reader, because closing can take as long as the worker
// likes (a socket in the queue of a socket, a pipe whose lock it holds).
type channels struct {
	report  *epoll.Source // of the new process, until the exec closes it
	begun   []byte        // the report so far
	socket  *epoll.Source // NOTIFY_SOCKET
	pipe    *epoll.Source // the read end of NOTIFY_FD
	bind    *epoll.Source // the notifications of its filter
	adopted bool          // they came from another image; only what answers them uses this
	path    string        // of NOTIFY_SOCKET
	leaving bool          // STOPPING=1 came
	drains  bool          // DrainsItself was posted
	kept    bool          // READY=1 stays in the kernel, and nothing after it is read, until Recorded
	begins  bool          // … and so does the descriptor of the filter in the report
}

// readiness is how it is found out that the worker is ready. Worker.mu guards it.
//
//	nothing ─► delay or probe ─► the method says ready ─► somebody accepts ─► posted
//
// Each wait has one cancel; claimReady replaces that of the method by that of the look at who accepts.
type readiness struct {
	posted  bool
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
	w.process.pidfd = -1
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
		write = func(b []byte) { w.spec.Captured(stream, w.process.pid, b) } // it was forked before anything is read
	case o.Kind == output.ToFile && o.File != nil:
		write = o.File.Put
	case o.Kind == output.Null, o.Kind == output.Capture:
		write = func([]byte) {}
	case stream == FDStdout:
		write = func(b []byte) { w.launcher.stdout.Write(b) }
	default:
		write = func(b []byte) { w.launcher.stderr.Write(b) }
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
	for before := len(w.channels.begun); w.channels.report != nil; {
		n, filter, err := spawn.ReadReport(w.channels.report.FD, buf[:])
		switch {
		case filter < 0:
		case w.channels.bind == nil:
			w.channels.bind = idle(filter)
		default: // that of keepsFilter
			unix.Close(filter)
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // nothing more for now
			if len(w.channels.begun) > before {
				w.events.put(life.Changed{})
			}
			return
		case n > 0:
			w.channels.begun = append(w.channels.begun, buf[:n]...)
		default:
			w.drop(&w.channels.report)
			w.reported()
		}
	}
}

// keepsFilter takes a duplicate of the filter's descriptor, if it has come, and leaves the report in the kernel until
// Recorded: if the supervisor dies before the record has the descriptor, the next one finds the descriptor in the
// report. With the last one closed, every bind(2) of the worker would fail with ENOSYS. w.mu is held.
func (w *Worker) keepsFilter() bool {
	if c := &w.channels; w.process.ended || c.report == nil || c.bind != nil {
		return false
	}
	fd := spawn.PeekFilter(w.channels.report.FD)
	if fd < 0 {
		return false
	}
	w.channels.bind, w.channels.begins = idle(fd), true
	w.launcher.poll.Remove(w.channels.report)
	w.events.put(life.Filtered{})
	return true
}

// reported acts on the whole report. w.mu is held.
func (w *Worker) reported() {
	runs, failure := spawn.ParseReport(w.channels.begun, &w.spec.Execution)
	if len(w.channels.begun) == 0 && !w.process.child && !w.process.ended {
		// the supervisor that started it has read the report and died before that was recorded; only the exec and the end
		// close the pipe
		runs = true
	}
	w.channels.begun = nil
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
	w.process.running = true
	w.events.put(life.Spawned{PID: w.process.pid})
	for _, d := range w.process.early {
		w.deliver(d) //nolint:errcheck // no caller waits for the answer any more
	}
	w.process.early = nil
	w.listen()
	w.answerBinds()
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
	status, ok := wait(pid)
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
	e := life.Exited{PID: w.process.pid, Status: status, Known: known}
	if !w.ready.posted && w.ready.refused != "" && status.ExitStatus() > 0 {
		e.Hint = "; " + w.ready.refused
	}
	e.OOM = known && status.Signaled() && status.Signal() == syscall.SIGKILL && !w.process.killed &&
		cgroup.OOMKilled(w.process.group)
	w.launcher.groups.End(w.process.group)
	w.readReport()
	if w.channels.report != nil { // some process has a copy of the other end, but the writer is dead
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
	w.mu.Lock()
	socket, pipe, filter := w.channels.socket, w.channels.pipe, w.channels.bind
	w.channels.bind = nil
	w.mu.Unlock()
	if filter != nil {
		w.launcher.poll.Remove(filter)
		w.launcher.KeepFilter("", filter.FD)
	}
	if w.process.running && socket != nil {
		w.readLast(socket.FD)
	}
	if w.process.running && pipe != nil {
		w.readPipe(pipe.FD)
	}
	closeAll(w.takeChannels())
}

// takeChannels takes away all descriptors on which the worker speaks.
func (w *Worker) takeChannels() (fds []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range channelNames {
		if at := w.channels.source(name); *at != nil {
			w.launcher.poll.Remove(*at)
			fds = append(fds, (*at).FD)
			*at = nil
		}
	}
	return fds
}

// channelNames are the names that the descriptors on which a worker can speak have in Descriptors.
var channelNames = []string{FDReport, FDNotify, FDPipe, FDBind}

// source returns where the descriptor of this name is kept; nil: it is not one of channelNames.
func (c *channels) source(name string) **epoll.Source {
	switch name {
	case FDReport:
		return &c.report
	case FDNotify:
		return &c.socket
	case FDPipe:
		return &c.pipe
	case FDBind:
		return &c.bind
	}
	return nil
}

// exited adds to e why the command did not run.
func (w *Worker) exited(e life.Exited) life.Exited {
	switch {
	case w.failure != nil:
		e.Step, e.Err = w.failure.Step, w.failure
	case !w.process.running:
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
	if w.channels.path != "" {
		w.launcher.notify.Unlink(w.channels.path)
	}
}

// idle returns a source that is not watched yet; nil if fd is negative.
func idle(fd int) *epoll.Source {
	if fd < 0 {
		return nil
	}
	return &epoll.Source{FD: fd}
}

// locked makes read a callback of the poller.
func (w *Worker) locked(read func()) func(uint32) {
	return func(uint32) {
		w.mu.Lock()
		defer w.mu.Unlock()
		read()
	}
}

// watch begins to watch an idle source. If the kernel refuses for some time, watch kills the worker, which would seem
// to hang otherwise. watch and read are called with w.mu.
func (w *Worker) watch(s **epoll.Source, read func()) { w.poll(s, false, read) }

// A source that cannot be watched, because the kernel has no memory or the user watches too many, is tried again so
// often, at this pause.
const (
	watchAttempts = 50
	watchPause    = 100 * time.Millisecond
)

// watchOnce is watch until something is there to read, or until Poller.Again.
func (w *Worker) watchOnce(s **epoll.Source, read func()) { w.poll(s, true, read) }

// poll watches a source, once or until it is removed; see watch. s is where the worker keeps the source: a source that
// is not there any more when the time for another attempt has come is left alone.
func (w *Worker) poll(s **epoll.Source, once bool, read func()) {
	if *s == nil {
		return
	}
	source := *s
	watched, err := w.launcher.poll.Add(source.FD, once, w.locked(read))
	if err != nil && w.process.unwatched < watchAttempts && !w.process.ended {
		w.process.unwatched++
		time.AfterFunc(watchPause, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if *s == source {
				w.poll(s, once, read)
			}
		})
		return
	}
	if err != nil {
		w.failure = spawn.Failed(spawn.StepWatch, err)
		w.deliver(Pending{Signal: syscall.SIGKILL, Group: true}) //nolint:errcheck // the failure is posted
		return
	}
	*s = watched
}

// drop ends the watch of a source. Another goroutine closes the descriptor after the reader there has finished. w.mu is
// held.
func (w *Worker) drop(s **epoll.Source) {
	if *s == nil {
		return
	}
	fd := (*s).FD
	w.launcher.poll.Remove(*s)
	w.aside.Do(func() { unix.Close(fd) })
	*s = nil
}

// measureWithin bounds the measuring of a worker's memory: a process can hold the lock that the kernel needs for it.
const measureWithin = 10 * time.Second

// Memory returns how much memory the worker and its descendants use, in bytes: of its control group if that has the
// memory controller, else proc.MemoryOfTree with this limit, which does not count orphaned descendants. Memory takes 10
// s at most, and ends with the worker.
func (w *Worker) Memory(limit uint64) (uint64, error) {
	w.mu.Lock()
	pid, there, group := w.process.pid, w.adoptable(), w.process.group
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

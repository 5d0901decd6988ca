package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
)

// Worker is one started process. Its methods may be called from anywhere, also after the end.
type Worker struct {
	launcher *Launcher
	spec     Spec
	life     context.Context    // until the process has ended
	over     context.CancelFunc // ends it
	mute     bool               // no notify socket and no readiness: a command of Run
	post     func(Event)
	events   queue
	side     sync.WaitGroup // the pumps and the probe, which end before Exited is posted
	aside    foreign.Line   // reads and closes what the worker could make slow

	mu      sync.Mutex
	process process
	said    said
	ready   readiness
	pumps   []*output.Pump
	failure *stepError
}

// process is what the kernel knows of a worker.
type process struct {
	pid     int // 0: not forked
	pidfd   int // -1: none
	child   bool
	running bool        // the command was executed
	ended   bool        // nothing may be sent to pid any more
	early   []Pending   // signals that wait for running
	exit    *source     // the pidfd, while it is watched
	grace   *time.Timer // until when the status of such a process may still be learned
	group   string      // the path of its control group; "": it has none
	killed  bool        // KILL was sent
	again   *time.Timer // until KILL is sent again
}

// said is where a worker speaks.
type said struct {
	status  *source // the shim's report, until the exec closes it
	report  []byte  // what came of it so far
	socket  *source // NOTIFY_SOCKET
	pipe    *source // the read end of NOTIFY_FD
	control control // einhorn's; without a socket there is none
	path    string
	leaving bool
	kept    bool // that it is ready, and nobody reads on until that is recorded
}

type readiness struct {
	said   bool
	delay  *time.Timer
	cancel context.CancelFunc // of the probe
}

func newWorker(l *Launcher, spec Spec, post func(Event)) *Worker {
	w := &Worker{launcher: l, spec: spec, post: post, events: newQueue()}
	w.process.pidfd = -1
	w.life, w.over = context.WithCancel(context.Background())
	l.mu.Lock()
	l.alive++
	l.mu.Unlock()
	return w
}

// live is the goroutine of a worker, from the fork to the end.
func (w *Worker) live() {
	if err := w.spawn(); err != nil {
		w.events.put(Exited{Step: err.Step, Err: err})
	}
	w.postAll()
}

func (w *Worker) postAll() {
	for {
		for _, e := range w.events.take() {
			exited, last := e.(Exited)
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

// sideTimeout is how long the end of a worker waits for its pumps and its probe. They have nothing to wait for themselves; but
// what the kernel does for them may hang, and the program must learn of the end nevertheless.
const sideTimeout = 5 * time.Second

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

// readReport reads what the shim says. w.mu is held.
func (w *Worker) readReport() {
	var buf [512]byte
	for w.said.status != nil {
		n, err := unix.Read(w.said.status.fd, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // nothing more for now
			return
		case n > 0:
			w.said.report = append(w.said.report, buf[:n]...)
		default:
			w.drop(&w.said.status)
			w.reported()
		}
	}
}

// reported draws the conclusion from the shim's whole report. Only a report that says that the exec was tried, and nothing
// after that, means that the command runs: a shim that was killed says nothing at all.
func (w *Worker) reported() {
	report := w.said.report
	w.said.report = nil
	if len(report) > 0 && report[0] == aboutToExec {
		report = report[1:]
		if len(report) == 0 {
			w.spawned()
			return
		}
	}
	failure := new(stepError)
	if err := json.Unmarshal(report, failure); err != nil || failure.Step == "" {
		return // died on the way: Exited will say it
	}
	w.failure = failure
}

func (w *Worker) spawned() {
	w.process.running = true
	w.events.put(Spawned{PID: w.process.pid})
	for _, d := range w.process.early {
		w.deliver(d)
	}
	w.process.early = nil
	w.listen()
	w.watchControl()
	w.awaitReady()
}

// collect ends a worker that is a zombie: no process of its group outlives it, and while the zombie holds the PID nobody
// else can be hit.
func (w *Worker) collect(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.process.ended {
		unix.Kill(-pid, unix.SIGKILL)
	}
	status, ok := take(pid)
	w.finish(status, ok)
}

// lastWords is how long Exited waits for what the worker said last.
const lastWords = time.Second

// finish ends a worker whose process is gone: everything that is left to say is said, and then that it has ended. w.mu is held.
func (w *Worker) finish(status syscall.WaitStatus, known bool) {
	if w.process.ended {
		return
	}
	w.process.ended = true
	w.over()
	e := Exited{PID: w.process.pid, Status: status, Known: known}
	e.OOM = known && status.Signaled() && status.Signal() == syscall.SIGKILL && !w.process.killed && oomKilled(w.process.group)
	w.launcher.groups.end(w.process.group)
	w.readReport()
	if w.said.status != nil { // somebody has a copy of the other end; but who wrote to it is dead
		w.reported()
	}
	w.stopReady()
	w.release()
	for _, p := range w.pumps {
		p.Finish()
	}
	w.said.kept = false
	e = w.exited(e)
	say := sync.OnceFunc(func() { w.events.put(e) })
	late := time.AfterFunc(lastWords, say)
	w.aside.Do(func() {
		w.hearRest()
		late.Stop()
		say()
	})
}

// hearRest hears what the worker said last and closes where it spoke.
func (w *Worker) hearRest() {
	w.mu.Lock()
	socket, pipe, listener := w.said.socket, w.said.pipe, w.said.control.socket
	w.mu.Unlock()
	if w.process.running && socket != nil {
		w.hearLast(socket.fd)
	}
	if w.process.running && pipe != nil {
		w.readPipe(pipe.fd)
	}
	if w.process.running && listener != nil {
		w.acceptControl(listener.fd, ready.MaxConnecting+1)
	}
	for _, fd := range w.hangUp() {
		unix.Close(fd)
	}
}

// hangUp takes all descriptors on which the worker spoke.
func (w *Worker) hangUp() (fds []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.said.control.lines {
		w.readControl(&w.said.control.lines[i])
	}
	for _, at := range w.sources() {
		if *at != nil {
			w.launcher.poll.remove(*at)
			fds = append(fds, (*at).fd)
			*at = nil
		}
	}
	return fds
}

// sources are all descriptors on which the worker speaks.
func (w *Worker) sources() []**source {
	all := []**source{&w.said.status, &w.said.socket, &w.said.pipe, &w.said.control.socket}
	for i := range w.said.control.lines {
		all = append(all, &w.said.control.lines[i].source)
	}
	return all
}

// exited adds to e why the command did not run.
func (w *Worker) exited(e Exited) Exited {
	switch {
	case w.failure != nil:
		e.Step, e.Err = w.failure.Step, w.failure
	case !w.process.running:
		e.Step, e.Err = stepStart, fmt.Errorf("%s before it could run", describe(e.Status, e.Known))
	}
	return e
}

// release gives back what belongs to the process. w.mu is held.
func (w *Worker) release() {
	if w.process.exit != nil {
		w.launcher.poll.remove(w.process.exit)
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
	if w.said.path != "" {
		w.launcher.notify.Unlink(w.said.path)
	}
}

// watch begins to watch an idle source. A worker that could not be heard is ended: it would seem to hang. read is called with w.mu, which
// is held here, too.
func (w *Worker) watch(s **source, read func()) { w.poll(s, false, read) }

// watchOnce is watch until something is there to read, or until poller.again.
func (w *Worker) watchOnce(s **source, read func()) { w.poll(s, true, read) }

func (w *Worker) poll(s **source, once bool, read func()) {
	if *s == nil {
		return
	}
	watched, err := w.launcher.poll.add((*s).fd, once, w.locked(read))
	if err != nil {
		w.failure = failed(stepWatch, err)
		w.deliver(Pending{syscall.SIGKILL, true})
		return
	}
	*s = watched
}

// drop ends the watch of a source. Its descriptor is closed aside, after whoever reads from it there. w.mu is held.
func (w *Worker) drop(s **source) {
	if *s == nil {
		return
	}
	fd := (*s).fd
	w.launcher.poll.remove(*s)
	w.aside.Do(func() { unix.Close(fd) })
	*s = nil
}

package worker

import (
	"bytes"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/worker/ready"
)

// maxControl is how many connections to the control socket of one worker are read at a time. One more ends the oldest.
const maxControl = 4

// control is einhorn's command socket, one for each worker: a worker written for einhorn says there that it is ready. There is a listening
// socket with a path (EINHORN_SOCK_PATH), and a connection that the worker is born with (EINHORN_SOCK_FD).
type control struct {
	socket *epoll.Source
	lines  [1 + maxControl]controlLine // the worker's own connection, then those that were accepted
	last   int                         // index of the line that was given out last
}

// controlLine is one connection.
type controlLine struct {
	source *epoll.Source
	got    []byte // the beginning of a message
}

// controlFD is the name of a connection in Descriptors.
func controlFD(i int) string { return FDControl + "-" + strconv.Itoa(i) }

// ControlFDs returns the names of all connections to a worker's control socket; all but the first are short-lived.
func ControlFDs() []string {
	var names []string
	for i := range 1 + maxControl {
		names = append(names, controlFD(i))
	}
	return names
}

// watchControl begins to read. w.mu is held.
func (w *Worker) watchControl() {
	c := &w.channels.control
	w.attend(&c.socket, func(listener int) { w.acceptControl(listener, maxControl) })
	for i := range c.lines {
		w.watchLine(&c.lines[i])
	}
}

func (w *Worker) watchLine(l *controlLine) { w.watch(&l.source, func() { w.readControl(l) }) }

// acceptControl accepts at most so many connections.
func (w *Worker) acceptControl(listener, most int) {
	for range most {
		l, s, peer, err := w.acceptLine(listener)
		if err != nil {
			return
		}
		allowed := w.maySpeak(peer)
		w.mu.Lock()
		switch {
		case l.source != s: // it was closed meanwhile
		case !allowed:
			w.drop(&l.source)
		case w.process.ended:
			w.readControl(l)
		default:
			w.watchLine(l)
		}
		w.mu.Unlock()
	}
}

// acceptLine accepts one connection, which is not read yet. It becomes the worker's at once, so that an execve loses none.
func (w *Worker) acceptLine(listener int) (*controlLine, *epoll.Source, *unix.Ucred, error) {
	w.launcher.gate.RLock()
	defer w.launcher.gate.RUnlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	fd, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	for errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
		fd, _, err = unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		peer = nil
	}
	l := w.channels.control.free()
	w.readControl(l)
	w.drop(&l.source)
	*l = controlLine{source: idle(fd)}
	return l, l.source, peer, nil
}

// free returns the line for the next connection: one that is not in use, or the oldest.
func (c *control) free() *controlLine {
	for range maxControl {
		c.last = c.last%maxControl + 1
		if c.lines[c.last].source == nil {
			return &c.lines[c.last]
		}
	}
	c.last = c.last%maxControl + 1
	return &c.lines[c.last]
}

// readControl reads messages, each a line. No client of einhorn sends descriptors. A client that does may try to block supervisord, so it
// ends the control socket of this worker for good. w.mu is held.
func (w *Worker) readControl(l *controlLine) {
	var buf [512]byte
	for range messagesPerTurn {
		if l.source == nil {
			return
		}
		n, err := foreign.Read(l.source.FD, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return
		case errors.Is(err, foreign.ErrRights):
			w.closeControl()
			return
		case n <= 0:
			w.drop(&l.source)
			return
		}
		l.got = append(l.got, buf[:n]...)
		w.events.put(Changed{})
		for line, rest, found := bytes.Cut(l.got, []byte("\n")); found; line, rest, found = bytes.Cut(l.got, []byte("\n")) {
			l.got = rest
			w.obey(l, line)
		}
		if len(l.got) > ready.MaxMessage {
			w.drop(&l.source)
		}
	}
}

// closeControl ends the control socket and every connection to it. w.mu is held.
func (w *Worker) closeControl() {
	w.drop(&w.channels.control.socket)
	for i := range w.channels.control.lines {
		w.drop(&w.channels.control.lines[i].source)
	}
}

// obey carries out a command; it knows only the ack of a worker. As with einhorn, the ack ends the connection, except the one that
// the worker was born with: if the worker uses it once more, that must not kill it. w.mu is held.
func (w *Worker) obey(l *controlLine, line []byte) {
	if l.source == nil {
		return
	}
	c, err := ready.ParseControlCommand(line)
	switch {
	case err == nil && c.Name == "worker:ack" && c.PID > 0:
		if w.spec.Ready.Method == ready.Notify && !w.channels.leaving {
			w.postReady()
		}
		if l != &w.channels.control.lines[0] {
			w.drop(&l.source)
		}
	case err == nil && c.Name == "worker:ping": // einhorn does not answer it either
	default:
		ready.RefuseControlCommand(l.source.FD, c.ID)
	}
}

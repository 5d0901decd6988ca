package worker

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
)

// How many messages are read at a turn, so that one worker cannot keep the others waiting; and at the end, when nothing comes
// after: at least what a queue holds (net.unix.max_dgram_qlen is 512 under systemd).
const (
	messagesAtATurn = 32
	lastMessages    = 1024
)

// listen begins to listen to the worker. Only after Spawned: what was said before that, nobody said who may, and what came since is still
// there. w.mu is held.
func (w *Worker) listen() {
	w.attend(&w.said.socket, w.readSocket)
	w.attend(&w.said.pipe, w.readPipe)
}

// attend has read called when there is something to read at a source: on the thread of w.aside, without a lock, and until it returns
// not again. w.mu is held.
func (w *Worker) attend(at **source, read func(fd int)) {
	w.watchOnce(at, func() {
		s := *at
		w.aside.Do(func() { w.readOnce(at, s, read) })
	})
}

func (w *Worker) readOnce(at **source, s *source, read func(fd int)) {
	attended := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return s != nil && *at == s && !w.said.kept
	}
	if !attended() {
		return
	}
	read(s.fd)
	if attended() {
		w.launcher.poll.again(s)
	}
}

// readSocket hears what is in the notify socket, up to a word that is to stay there until Recorded. Each message is taken out after it
// was heard, so that an execve between the two loses none.
func (w *Worker) readSocket(fd int) {
	for range messagesAtATurn {
		m, sender, err := ready.Peek(fd)
		if err != nil || !w.hearIf(w.maySpeak(sender), m) {
			return
		}
		ready.Take(fd)
	}
}

// hearIf hears a message if it is the worker's. It returns false if the message has to stay where it is.
func (w *Worker) hearIf(mine bool, m ready.Notification) bool {
	w.launcher.gate.RLock()
	defer w.launcher.gate.RUnlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said.kept || mine && m.Ready && !m.Stopping && w.mayGetReady() {
		w.keepReady()
		return false
	}
	if mine {
		w.hear(m)
	}
	return true
}

// hearLast hears what is left in the notify socket of a worker that has ended, wherever it is in the queue, and leaves it there.
func (w *Worker) hearLast(fd int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0) != nil {
		return
	}
	for range lastMessages {
		m, sender, err := ready.Peek(fd)
		if err != nil {
			return
		}
		w.hearIf(w.maySpeak(sender), m)
	}
}

// mayGetReady reports whether the worker could say that it is ready, and live on. w.mu is held.
func (w *Worker) mayGetReady() bool {
	return w.spec.Ready.Method == ready.Notify && !w.ready.said && !w.said.leaving && !w.process.ended
}

// keepReady posts that the worker is ready, and leaves what said so where it is until Recorded: a supervisor that dies before
// it has written that down leaves the word to the next one. w.mu is held.
func (w *Worker) keepReady() {
	w.sayReady()
	w.said.kept = true
	w.launcher.poll.remove(w.said.socket)
	w.launcher.poll.remove(w.said.pipe)
}

// Recorded tells that what was posted so far is written down for the next supervisor.
func (w *Worker) Recorded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said.kept {
		w.said.kept = false
		w.listen()
	}
}

// hear posts what a message says; in the order in which systemd takes it, whatever the order of its lines.
func (w *Worker) hear(m ready.Notification) {
	if m.Stopping && !w.said.leaving {
		w.said.leaving = true
		w.stopReady()
		w.events.put(Leaving{})
	}
	if m.Ready && !w.said.leaving && w.spec.Ready.Method == ready.Notify {
		w.sayReady()
	}
	if status := output.Printable(m.Status); status != "" || m.Errno != 0 {
		w.events.put(Status{Text: status, Errno: m.Errno})
	}
	if m.Extend > 0 {
		w.events.put(Extend{Duration: m.Extend})
	}
	if m.Watchdog || m.Trigger {
		w.events.put(Watchdog{Trigger: m.Trigger})
	}
}

// readPipe reads NOTIFY_FD: a newline means ready. What comes after it is read too, so that writing never blocks or fails.
func (w *Worker) readPipe(fd int) {
	var buf [256]byte
	for range messagesAtATurn {
		most := len(buf)
		if w.awaitsWord() {
			seen, err := ready.PeekPipe(fd)
			if errors.Is(err, unix.EAGAIN) || bytes.IndexByte(seen, '\n') >= 0 && !w.hearIf(true, ready.Notification{Ready: true}) {
				return
			}
			if err == nil {
				most = min(most, max(1, len(seen))) // and nothing that came since: it may be the newline
			}
		}
		if !w.emptyPipe(fd, buf[:most]) {
			return
		}
	}
}

// emptyPipe takes something out of the pipe. It returns false if there is nothing more for now.
func (w *Worker) emptyPipe(fd int, buf []byte) bool {
	n, err := unix.Read(fd, buf)
	if err != nil {
		return errors.Is(err, unix.EINTR)
	}
	if bytes.IndexByte(buf[:n], '\n') >= 0 { // nobody could look at it before, or the worker has ended
		w.hearIf(true, ready.Notification{Ready: true})
	}
	if n == 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drop(&w.said.pipe)
	}
	return n > 0
}

func (w *Worker) awaitsWord() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mayGetReady()
}

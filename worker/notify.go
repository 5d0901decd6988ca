package worker

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/output"
)

// maxMessage is the longest message, as systemd has it (sd_notify(3), PIPE_BUF).
const maxMessage = 4096

// How many messages are read at a turn, so that one worker cannot keep the others waiting; and at the end, when nothing comes
// after: at least what a queue holds (net.unix.max_dgram_qlen is 512 under systemd).
const (
	messagesAtATurn = 32
	lastMessages    = 1024
)

// message is what one datagram says, of what this package understands (sd_notify(3)).
type message struct {
	ready    bool
	stopping bool
	status   string
	errno    syscall.Errno
	extend   time.Duration
	watchdog bool
	trigger  bool
}

var errBadMessage = errors.New("not a notify message")

// parseMessage reads KEY=VALUE lines. A message with a NUL, that is too long or not UTF-8 is refused as a whole; assignments
// that are unknown or make no sense are skipped.
func parseMessage(data []byte) (message, error) {
	var m message
	if len(data) > maxMessage || bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) {
		return m, errBadMessage
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		key, value, ok := strings.Cut(line, "=")
		if ok {
			m.assign(key, value)
		}
	}
	return m, nil
}

func (m *message) assign(key, value string) {
	switch key {
	case "READY":
		m.ready = m.ready || value == "1"
	case "STOPPING":
		m.stopping = m.stopping || value == "1"
	case "STATUS":
		m.status = output.Printable(value)
	case "ERRNO":
		if n, err := strconv.ParseUint(value, 10, 12); err == nil {
			m.errno = syscall.Errno(n)
		}
	case "EXTEND_TIMEOUT_USEC":
		if n, err := strconv.ParseUint(value, 10, 64); err == nil && n <= math.MaxInt64/1000 {
			m.extend = time.Duration(n) * time.Microsecond
		}
	case "WATCHDOG":
		m.watchdog = m.watchdog || value == "1"
		m.trigger = m.trigger || value == "trigger"
	}
}

// mailbox is what one datagram is looked at in. It has room for the credentials of the sender, and none for descriptors: package foreign
// says why.
type mailbox struct {
	data    [maxMessage + 1]byte
	control []byte
}

var mailboxes = sync.Pool{New: func() any { return &mailbox{control: make([]byte, unix.CmsgSpace(unix.SizeofUcred))} }}

// look returns what the next datagram in a notify socket says, and who sent it (nil: the kernel does not say). The datagram stays there.
// One that is too long, or makes no sense, is an empty message.
func (b *mailbox) look(fd int) (message, *unix.Ucred, error) {
	n, oobn, flags, _, err := unix.Recvmsg(fd, b.data[:], b.control, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err != nil {
		return message{}, nil, err
	}
	sender := credentials(b.control[:oobn])
	if flags&unix.MSG_TRUNC != 0 {
		return message{}, sender, nil
	}
	m, err := parseMessage(b.data[:n])
	if err != nil {
		return message{}, sender, nil
	}
	return m, sender, nil
}

func credentials(control []byte) *unix.Ucred {
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(list) == 0 {
		return nil
	}
	sender, err := unix.ParseUnixCredentials(&list[0])
	if err != nil {
		return nil
	}
	return sender
}

// takeMessage takes the next datagram out of a notify socket. The kernel drops the descriptors that came with it, which is what the
// sender of a BARRIER=1 waits for, and which may take long: package foreign.
func takeMessage(fd int) {
	var nothing [1]byte
	unix.Read(fd, nothing[:]) //nolint:errcheck // it is there
}

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
	box := mailboxes.Get().(*mailbox)
	defer mailboxes.Put(box)
	for range messagesAtATurn {
		m, sender, err := box.look(fd)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || !w.hearIf(w.maySpeak(sender), m) {
			return
		}
		takeMessage(fd)
	}
}

// hearIf hears a message if it is the worker's. It returns false if the message has to stay where it is.
func (w *Worker) hearIf(mine bool, m message) bool {
	w.launcher.gate.RLock()
	defer w.launcher.gate.RUnlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said.kept || mine && m.ready && !m.stopping && w.mayGetReady() {
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
	box := mailboxes.Get().(*mailbox)
	defer mailboxes.Put(box)
	for range lastMessages {
		m, sender, err := box.look(fd)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		w.hearIf(w.maySpeak(sender), m)
	}
}

// mayGetReady reports whether the worker could say that it is ready, and live on. w.mu is held.
func (w *Worker) mayGetReady() bool {
	return w.spec.Ready.Method == Notify && !w.ready.said && !w.said.leaving && !w.process.ended
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
func (w *Worker) hear(m message) {
	if m.stopping && !w.said.leaving {
		w.said.leaving = true
		w.stopReady()
		w.events.put(Leaving{})
	}
	if m.ready && !w.said.leaving && w.spec.Ready.Method == Notify {
		w.sayReady()
	}
	if m.status != "" || m.errno != 0 {
		w.events.put(Status{Text: m.status, Errno: m.errno})
	}
	if m.extend > 0 {
		w.events.put(Extend{Duration: m.extend})
	}
	if m.watchdog || m.trigger {
		w.events.put(Watchdog{Trigger: m.trigger})
	}
}

// readPipe reads NOTIFY_FD: a newline means ready. What comes after it is read too, so that writing never blocks or fails.
func (w *Worker) readPipe(fd int) {
	var buf [256]byte
	for range messagesAtATurn {
		most := len(buf)
		if w.awaitsWord() {
			seen, err := peekPipe(fd)
			if errors.Is(err, unix.EAGAIN) || bytes.IndexByte(seen, '\n') >= 0 && !w.hearIf(true, message{ready: true}) {
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
		w.hearIf(true, message{ready: true})
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

// peekPipe returns what is in a pipe, without taking it out (tee(2)): nothing after its end, and EAGAIN if there is nothing yet.
func peekPipe(fd int) ([]byte, error) {
	var copies [2]int
	if err := unix.Pipe2(copies[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	defer closeAll(copies[:])
	n, err := unix.Tee(fd, copies[1], maxMessage, unix.SPLICE_F_NONBLOCK)
	if err != nil || n == 0 {
		return nil, err
	}
	buf := make([]byte, maxMessage)
	got, err := unix.Read(copies[0], buf)
	if err != nil {
		return nil, err
	}
	return buf[:got], nil
}

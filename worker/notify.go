package worker

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Limits of the protocol, as systemd has them (sd_notify(3), PIPE_BUF) and the kernel (SCM_MAX_FD).
const (
	maxMessage     = 4096
	maxDescriptors = 253
)

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
		m.status = printable(value)
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

// printable keeps terminals and logs safe from what a worker says.
func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, s))
}

// mailbox is what one datagram is read into; there are as many as are being read at a time.
type mailbox struct {
	data    [maxMessage + 1]byte
	control [2048]byte // credentials, and as many descriptors as the kernel lets through
}

var mailboxes = sync.Pool{New: func() any { return new(mailbox) }}

// receive takes one datagram from fd without waiting, or with MSG_PEEK only looks at it. Descriptors that came with it are closed at once: that is what a
// BARRIER=1 waits for, and nothing else is wanted. A sender that allowed does not name, or a datagram that did not fit, counts
// as an empty message.
func (b *mailbox) receive(fd int, allowed func(uid uint32) bool, how int) (message, error) {
	n, oobn, flags, _, err := unix.Recvmsg(fd, b.data[:], b.control[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC|how)
	if err != nil {
		return message{}, err
	}
	sender, known := openControl(b.control[:oobn])
	if !known || !allowed(sender) || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return message{}, nil
	}
	m, err := parseMessage(b.data[:n])
	if err != nil {
		return message{}, nil
	}
	return m, nil
}

// openControl finds the sender's user, and closes all descriptors.
func openControl(control []byte) (uid uint32, known bool) {
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for i := range list {
		if fds, err := unix.ParseUnixRights(&list[i]); err == nil {
			closeAll(fds)
		}
		if c, err := unix.ParseUnixCredentials(&list[i]); err == nil {
			uid, known = c.Uid, true
		}
	}
	return uid, known
}

// listen begins to watch where the worker speaks. Only after Spawned: what was said before that, nobody said who may, and what
// came since is still there.
func (w *Worker) listen() {
	w.watch(&w.said.socket, func() { w.readSocket(messagesAtATurn) })
	w.watch(&w.said.pipe, w.readPipe)
}

// readSocket reads at most that many messages. w.mu is held.
func (w *Worker) readSocket(most int) {
	if w.said.socket == nil || !w.process.running {
		return
	}
	box := mailboxes.Get().(*mailbox)
	defer mailboxes.Put(box)
	for range most {
		if w.mayGetReady() {
			if m, err := box.receive(w.said.socket.fd, w.maySpeak, unix.MSG_PEEK); err == nil && m.ready && !m.stopping {
				w.keepReady()
				return
			}
		}
		m, err := box.receive(w.said.socket.fd, w.maySpeak, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		w.hear(m)
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

// maySpeak: the worker's user, root, and the supervisor's user may send to a worker's socket.
func (w *Worker) maySpeak(uid uint32) bool {
	own := uint32(os.Geteuid())
	return uid == 0 || uid == own || w.spec.Credential != nil && uid == w.spec.Credential.UID
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
// w.mu is held.
func (w *Worker) readPipe() {
	if w.said.pipe == nil || !w.process.running {
		return
	}
	if w.mayGetReady() && bytes.IndexByte(peekPipe(w.said.pipe.fd), '\n') >= 0 {
		w.keepReady()
		return
	}
	var buf [256]byte
	for range messagesAtATurn {
		n, err := unix.Read(w.said.pipe.fd, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return
		case n == 0:
			w.drop(&w.said.pipe)
			return
		case bytes.IndexByte(buf[:n], '\n') >= 0 && w.spec.Ready.Method == Notify:
			w.sayReady()
		}
	}
}

// peekPipe returns what is in a pipe, without taking it out (tee(2)).
func peekPipe(fd int) []byte {
	var copies [2]int
	if err := unix.Pipe2(copies[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil
	}
	defer closeAll(copies[:])
	if n, err := unix.Tee(fd, copies[1], maxMessage, unix.SPLICE_F_NONBLOCK); err != nil || n == 0 {
		return nil
	}
	buf := make([]byte, maxMessage)
	n, err := unix.Read(copies[0], buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

package ready

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
)

// maxMessage is the length of the longest message in bytes, as systemd has it (sd_notify(3), PIPE_BUF).
const maxMessage = 4096

// drains is the variable of ours among those of sd_notify(3): with the value 1 the worker promises that it loses
// nothing when TERM comes while it is busy, so that TERM need not wait. Other supervisors ignore a variable that begins
// with "X_".
const drains = "X_SUPERVISORD_DRAINS"

// Notification is what one datagram says, as far as supervisord understands it (sd_notify(3)).
type Notification struct {
	Ready    bool
	Stopping bool
	Status   string // may contain anything
	Errno    syscall.Errno
	Extend   time.Duration
	Watchdog bool // WATCHDOG=1
	Trigger  bool // WATCHDOG=trigger
	Drains   bool // X_SUPERVISORD_DRAINS=1
}

// parseNotification reads lines KEY=VALUE. A message that has a NUL, is too long or not UTF-8 says nothing; unknown or
// senseless lines are skipped.
func parseNotification(data []byte) Notification {
	var m Notification
	if len(data) > maxMessage || bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) {
		return m
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if key, value, ok := strings.Cut(line, "="); ok {
			m.assign(key, value)
		}
	}
	return m
}

// assign takes one line. Of a variable that comes twice the last one counts, as with systemd, but nothing takes back
// READY=1, STOPPING=1 or a trigger.
func (m *Notification) assign(key, value string) {
	switch key {
	case "READY":
		m.Ready = m.Ready || value == "1"
	case "STOPPING":
		m.Stopping = m.Stopping || value == "1"
	case "STATUS":
		m.Status = value
	case "ERRNO":
		if n, err := strconv.ParseUint(value, 10, 12); err == nil {
			m.Errno = syscall.Errno(n)
		}
	case "EXTEND_TIMEOUT_USEC":
		if n, err := strconv.ParseUint(value, 10, 64); err == nil && n <= math.MaxInt64/1000 {
			m.Extend = time.Duration(n) * time.Microsecond
		}
	case "WATCHDOG":
		m.Watchdog = m.Watchdog || value == "1"
		m.Trigger = m.Trigger || value == "trigger"
	case drains:
		m.Drains = m.Drains || value == "1"
	}
}

// envelope has room for one datagram and the credentials of its sender, and none for descriptors: package foreign says
// why.
type envelope struct {
	data    [maxMessage + 1]byte
	control []byte
}

var envelopes = sync.Pool{New: func() any { return &envelope{control: make([]byte, unix.CmsgSpace(unix.SizeofUcred))} }}

// Peek returns what the next datagram in a notify socket says, and its sender (nil: unknown). The datagram stays in the
// socket. A datagram that is too long or malformed says nothing. The error is that of recvmsg(2).
func Peek(fd int) (Notification, *unix.Ucred, error) {
	e := envelopes.Get().(*envelope)
	defer envelopes.Put(e)
	for {
		n, oobn, flags, _, err := unix.Recvmsg(fd, e.data[:], e.control, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return Notification{}, nil, err
		case flags&unix.MSG_TRUNC != 0:
			n = 0
		}
		return parseNotification(e.data[:n]), senderIn(e.control[:oobn]), nil
	}
}

// senderIn returns who sent a datagram, from the SCM_CREDENTIALS of unix(7), which the kernel has checked; nil: it is
// not there, or not the first control message.
func senderIn(control []byte) *unix.Ucred {
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

// Take removes the next datagram from a notify socket. The kernel drops the descriptors that came with it. The sender
// of a BARRIER=1 waits for that, and that may take long: package foreign.
func Take(fd int) {
	var nothing [1]byte
	unix.Read(fd, nothing[:]) //nolint:errcheck // it was there at Peek
}

// PeekPipe returns what is in a pipe, which stays there (tee(2)): nothing at its end, and EAGAIN if there is nothing
// yet.
func PeekPipe(fd int) ([]byte, error) {
	var copies [2]int
	if err := unix.Pipe2(copies[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	defer unix.Close(copies[0])
	defer unix.Close(copies[1])
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

package systemd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	maxPayload = 4096 // what PID 1 reads of a datagram (PIPE_BUF); a longer one is dropped
	maxStatus  = 1024 // bytes of a status; a person reads it on one line
	maxPath    = 107  // of a unix socket, unix(7), less the final NUL
)

// ErrQueueFull says that systemd has not read for so long that the message could not even be put aside.
var ErrQueueFull = errors.New("systemd does not read its notification socket: too many messages are waiting")

// ErrUnreachable says that nobody answers at NOTIFY_SOCKET.
var ErrUnreachable = errors.New("cannot connect to systemd's notification socket")

// ErrClosed says that a message was given to a Notify after its Close, or was still waiting then.
var ErrClosed = errors.New("the notification socket has been closed")

// Notify tells systemd about this service. Its methods never wait for systemd: a message that its socket has no room for
// is put aside and sent in order by a goroutine of Notify's own, at most maxWaiting of them, beyond which they return
// ErrQueueFull. Of waiting messages that only repeat a state (a status, a watchdog ping, an extension) the last is kept.
// They may be called from several goroutines. Without a NOTIFY_SOCKET they do nothing.
//
// Only messages of the service's main process count (NotifyAccess=main).
type Notify struct {
	queue *queue // nil: nobody listens
}

// Open makes a Notify for the NOTIFY_SOCKET that getenv knows: a path or, with a leading @, an abstract name. stored is what
// systemd keeps for the next main process, by name, as Freeze returned it to the image before this one; nil takes it from
// LISTEN_FDNAMES, as systemd has set it. FDSTORE, where systemd has set it, limits the store. failed gets the errors of
// messages that had been put aside, on Notify's goroutine; it may be nil.
//
// If systemd does not answer at its socket, Open returns ErrUnreachable (wrapped) and a Notify that may be used nevertheless:
// each message tries again.
func Open(getenv func(string) string, stored map[string]int, failed func(error)) (*Notify, error) {
	address := getenv("NOTIFY_SOCKET")
	if address == "" {
		return &Notify{}, nil
	}
	if err := checkAddress(address); err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET=%s: %w", address, err)
	}
	if stored == nil {
		stored = listed(getenv("LISTEN_FDNAMES"))
	}
	most, _ := strconv.Atoi(getenv("FDSTORE")) // 0 where it is missing: no limit is known
	queue, err := openQueue(address, newLedger(stored, most), failed)
	if err != nil {
		err = fmt.Errorf("NOTIFY_SOCKET=%s: %w", address, err)
	}
	if queue == nil {
		return nil, err
	}
	return &Notify{queue: queue}, err
}

func checkAddress(address string) error {
	switch {
	case strings.HasPrefix(address, "vsock"):
		return errors.New("a vsock address is for the system manager of a virtual machine; a service needs a unix socket")
	case address[0] != '/' && address[0] != '@' || len(address) == 1:
		return errors.New("neither an absolute path nor an abstract name (@name)")
	case len(address) > maxPath:
		return fmt.Errorf("longer than the %d bytes that a unix socket address has", maxPath)
	}
	return nil
}

// Enabled says whether anybody listens.
func (n *Notify) Enabled() bool { return n.queue != nil }

// Send sends assignments ("KEY=VALUE") as one message, which systemd handles as a whole. See sd_notify(3).
func (n *Notify) Send(assignments ...string) error {
	if n.queue == nil {
		return nil
	}
	payload, err := join(assignments)
	if err != nil {
		return err
	}
	return n.queue.post(&message{payload: payload, state: repeated(assignments)})
}

// join makes the payload of one message.
func join(assignments []string) ([]byte, error) {
	for _, assignment := range assignments {
		if strings.ContainsAny(assignment, "\n\x00") || strings.IndexByte(assignment, '=') < 1 {
			return nil, fmt.Errorf("cannot notify systemd: %q is not one KEY=VALUE", assignment)
		}
	}
	payload := strings.Join(assignments, "\n")
	if len(payload) == 0 || len(payload) > maxPayload {
		return nil, fmt.Errorf("cannot notify systemd: a message of %d bytes (1 to %d are allowed)", len(payload), maxPayload)
	}
	return []byte(payload), nil
}

// repeated names the state that a message only brings up to date, if it does nothing else.
func repeated(assignments []string) string {
	if len(assignments) != 1 {
		return ""
	}
	switch key, _, _ := strings.Cut(assignments[0], "="); key {
	case "STATUS", "WATCHDOG", "EXTEND_TIMEOUT_USEC":
		return key
	}
	return ""
}

// Ready says that the start, or the reload after Reloading, is finished.
func (n *Notify) Ready() error { return n.Send("READY=1") }

// Reloading says that a reload begins. Ready must follow, also when it failed: until then systemd shows the service as
// reloading, and before version 258 some wait for it without a limit.
func (n *Notify) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("cannot read the monotonic clock: %w", err)
	}
	return n.Send("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
}

// Stopping says that the service is ending. It cannot be taken back.
func (n *Notify) Stopping() error { return n.Send("STOPPING=1") }

// Status sets the line that `systemctl status` shows. Line ends and control characters become spaces, what is no UTF-8 is
// replaced, and beyond maxStatus bytes it ends in "…".
func (n *Notify) Status(text string) error { return n.Send("STATUS=" + oneLine(text)) }

func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= maxStatus {
		return text
	}
	end := maxStatus - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// Watchdog says that the service is alive. See WatchdogInterval.
func (n *Notify) Watchdog() error { return n.Send("WATCHDOG=1") }

// ExtendTimeout asks that the start, reload or stop that is under way, and the watchdog, may take d more from now on. It is
// to be repeated before d has passed.
func (n *Notify) ExtendTimeout(d time.Duration) error {
	return n.Send("EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(max(d.Microseconds(), 1), 10))
}

// MainPID says that the service's main process is now pid.
func (n *Notify) MainPID(pid int) error { return n.Send("MAINPID=" + strconv.Itoa(pid)) }

// Close ends the goroutine and gives up what is still waiting: call Flush before an exit.
func (n *Notify) Close() error {
	if n.queue == nil {
		return nil
	}
	return n.queue.close()
}

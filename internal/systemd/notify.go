// Package systemd is a service's end of its conversations with systemd: notification (sd_notify(3)), the
// file-descriptor store, the watchdog and the journal's native protocol. It neither reads nor changes the environment
// by itself: callers pass in what it needs, usually as os.Getenv.
//
// Without systemd everything here does nothing and returns no error, so that callers need not check.
package systemd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	maxStatus = 1024 // bytes of a status; a person reads it on one line
	maxPath   = 107  // of a unix socket, unix(7), less the final NUL
)

// ErrUnreachable says that nothing listens at NOTIFY_SOCKET.
var ErrUnreachable = errors.New("cannot connect to systemd's notification socket")

// errClosed says that a message was given to a Notify after its Close.
var errClosed = errors.New("the notification socket is closed")

// Notify tells systemd about this service. Its methods never wait for systemd. If the socket has no room for a state
// (READY=, STATUS=, …), Notify queues the state, and its goroutine sends it, in order; only the newest of each kind
// waits. Descriptors for the store are not queued: see StoreFD. The methods may be called from several goroutines.
// Without a NOTIFY_SOCKET they do nothing.
//
// Only messages of the service's main process count (NotifyAccess=main).
type Notify struct {
	sender *sender // nil: nothing listens
}

// Open makes a Notify for the NOTIFY_SOCKET that getenv knows: a path or, with a leading @, an abstract name. failed
// gets the errors of queued messages, on Notify's goroutine; it may be nil.
//
// If systemd does not answer at its socket, Open returns ErrUnreachable (wrapped) and a usable Notify:
// each message tries again.
func Open(getenv func(string) string, failed func(error)) (*Notify, error) {
	address := getenv("NOTIFY_SOCKET")
	if address == "" {
		return &Notify{}, nil
	}
	if err := checkAddress(address); err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET=%s: %w", address, err)
	}
	s, err := openSender(address, failed)
	if err != nil {
		err = fmt.Errorf("NOTIFY_SOCKET=%s: %w", address, err)
	}
	if s == nil {
		return nil, err
	}
	return &Notify{sender: s}, err
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

// Enabled reports whether there is a NOTIFY_SOCKET.
func (n *Notify) Enabled() bool { return n.sender != nil }

// send sends one assignment.
func (n *Notify) send(key, value string) error {
	if n.sender == nil {
		return nil
	}
	return n.sender.send(assignment{key, value})
}

// Ready says that the start is finished.
func (n *Notify) Ready() error { return n.send("READY", "1") }

// Stopping says that the service is ending. It cannot be taken back.
func (n *Notify) Stopping() error { return n.send("STOPPING", "1") }

// Status sets the line that `systemctl status` shows. Line ends and control characters become spaces, invalid UTF-8 is
// replaced, and text beyond 1024 bytes is cut off, with "…" at the end.
func (n *Notify) Status(text string) error { return n.send("STATUS", oneLine(text)) }

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
func (n *Notify) Watchdog() error { return n.send("WATCHDOG", "1") }

// ExtendTimeout asks that the start, reload or stop that is under way, and the watchdog, may take d more from now on.
// It must be repeated before d has passed.
func (n *Notify) ExtendTimeout(d time.Duration) error {
	return n.send("EXTEND_TIMEOUT_USEC", strconv.FormatInt(max(d.Microseconds(), 1), 10))
}

// Close ends the goroutine and gives up what is still waiting. A second Close does nothing.
func (n *Notify) Close() error {
	if n.sender == nil {
		return nil
	}
	return n.sender.close()
}

// WatchdogInterval returns how often Watchdog must be called: at half of WATCHDOG_USEC, as sd_watchdog_enabled(3)
// advises, or 0 if there is no watchdog or WATCHDOG_PID says that it is for another process than pid.
func WatchdogInterval(getenv func(string) string, pid int) time.Duration {
	usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 || usec > int64(time.Duration(1<<63-1)/time.Microsecond) {
		return 0
	}
	if whose := getenv("WATCHDOG_PID"); whose != "" && whose != strconv.Itoa(pid) {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 2
}

const maxFDName = 255 // bytes

// ErrBusy says that systemd's socket has no room for a message about the store now. Nothing was sent.
var ErrBusy = errors.New("systemd does not read its notification socket")

// StoreFD puts descriptors into systemd's file-descriptor store under one name, as duplicates and in one message: they
// come back to the next main process of the service in LISTEN_FDS and LISTEN_FDNAMES, in no particular order. The
// caller keeps its own. The store does not watch them (FDPOLL=0), so a descriptor that reports an error or a hangup
// stays in the store, too. The kernel takes 253 at once.
//
// When StoreFD returns nil, systemd gets the descriptors whatever becomes of this process. StoreFD never waits: if the
// socket has no room, it returns ErrBusy, and Writable says when to try again. A caller that is replaced or killed in
// between thus always knows what systemd has.
//
// systemd does not answer. It ignores a descriptor that the store already has, even under another name; to detect that,
// it compares a new descriptor with every other, which takes 1 to 3 ms in a store of thousands.
func (n *Notify) StoreFD(name string, fds ...int) error {
	if err := checkFDName(name); err != nil || n.sender == nil {
		return err
	}
	return n.sender.sendNow("FDSTORE=1\nFDNAME="+name+"\nFDPOLL=0", fds...)
}

// RemoveFD takes every descriptor of this name out of the store, on the same terms as StoreFD. Call it before the
// descriptor is closed: as long as systemd holds a listening socket, its address stays taken.
func (n *Notify) RemoveFD(name string) error {
	if err := checkFDName(name); err != nil || n.sender == nil {
		return err
	}
	return n.sender.sendNow("FDSTOREREMOVE=1\nFDNAME=" + name)
}

// Writable gets a value when a call that returned ErrBusy is worth another try.
func (n *Notify) Writable() <-chan struct{} {
	if n.sender == nil {
		return nil
	}
	return n.sender.writable
}

// checkFDName returns an error for a name that systemd would silently replace.
func checkFDName(name string) error {
	if name == "" || len(name) > maxFDName {
		return fmt.Errorf("cannot store a descriptor under a name of %d bytes: use 1 to %d", len(name), maxFDName)
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == ':' {
			return fmt.Errorf("cannot store a descriptor under the name %q: use printable ASCII without a colon", name)
		}
	}
	return nil
}

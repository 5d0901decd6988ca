package graceful

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// notifier is where this process reports its state: sd_notify(3)'s NOTIFY_SOCKET and s6's notification fd. Either may
// be present.
type notifier struct {
	socket   string // "": none
	watchdog time.Duration
	mu       sync.Mutex
	fd       int   // closed and -1 after ready was said
	err      error // why NOTIFY_FD cannot be used
}

// readNotifier reads the variables of sd_notify(3) and sd_watchdog_enabled(3). The descriptor in NOTIFY_FD is this
// process's own from now on, and close-on-exec.
func readNotifier() *notifier {
	n := &notifier{socket: os.Getenv("NOTIFY_SOCKET"), fd: -1}
	if text, ok := os.LookupEnv("NOTIFY_FD"); ok && text != "" {
		n.fd, n.err = notifyFD(text)
	}
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		usec, _ := strconv.ParseUint(os.Getenv("WATCHDOG_USEC"), 10, 50)
		n.watchdog = time.Duration(usec) * time.Microsecond
	}
	return n
}

func notifyFD(text string) (int, error) {
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 0 {
		return -1, fmt.Errorf("NOTIFY_FD=%q is not a descriptor", text)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return -1, fmt.Errorf("NOTIFY_FD=%d is not open", fd)
	}
	unix.CloseOnExec(fd)
	return fd, nil
}

// Ready says that this process serves: READY=1 on NOTIFY_SOCKET, a newline on NOTIFY_FD or both; without either, Ready
// does nothing. Serve calls it, so only a program without Serve needs it. If the supervisor has died meanwhile, that is
// not an error: this process keeps serving, and the next supervisor adopts it or tells it to stop.
//
// Ready promises nothing about the stop; Serve also says that it drains by itself (X_SUPERVISORD_DRAINS=1), so that
// supervisord sends TERM as soon as the next worker serves and does not first wait until this one is idle: only until
// it has received the datagrams that came to it.
func Ready() error { return sayReady(false) }

func sayReady(drains bool) error {
	n := started().notify
	message := "READY=1"
	if drains {
		message += "\nX_SUPERVISORD_DRAINS=1"
	}
	return errors.Join(n.err, unlessGone(n.send(message)), unlessGone(n.newline()))
}

// unlessGone drops the error that means that no process listens any more.
func unlessGone(err error) error {
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	return err
}

// Status says in one line, for people, what this process is doing (STATUS= of sd_notify(3)).
func Status(text string) error {
	return started().notify.send("STATUS=" + strings.ReplaceAll(text, "\n", " "))
}

// Stopping says that this process is about to end, by itself or because it was told to. Serve calls it.
func Stopping() error { return started().notify.send("STOPPING=1") }

// Watchdog tells the supervisor that this process is alive, twice in each interval that the supervisor asked for
// (WATCHDOG_USEC of sd_watchdog_enabled(3)), until ctx ends. It sends no ping while alive returns an error, so that the
// supervisor replaces a process that is stuck; a nil alive means always alive. If the supervisor asked for no watchdog,
// Watchdog returns at once. Serve calls it with Options.Alive.
func Watchdog(ctx context.Context, alive func() error) error {
	n := started().notify
	if n.watchdog <= 0 {
		return nil
	}
	tick := time.NewTicker(max(n.watchdog/2, time.Millisecond))
	defer tick.Stop()
	for {
		if alive == nil || alive() == nil {
			_ = n.send("WATCHDOG=1") // the next ping may get through; if none does, the process should be replaced
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// send sends one datagram. It does not wait forever for a supervisor that does not read.
func (n *notifier) send(message string) error {
	if n.socket == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("cannot notify the supervisor: %w", err)
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte(message)); err != nil {
		return fmt.Errorf("cannot notify the supervisor: %w", err)
	}
	return nil
}

// newline says ready on NOTIFY_FD, once.
func (n *notifier) newline() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fd < 0 {
		return nil
	}
	_, err := unix.Write(n.fd, []byte("\n"))
	err = errors.Join(err, unix.Close(n.fd))
	n.fd = -1
	if err != nil {
		return fmt.Errorf("cannot say ready on NOTIFY_FD: %w", err)
	}
	return nil
}

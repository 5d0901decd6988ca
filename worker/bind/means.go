package bind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/spawn"
)

// Privileged reports whether this process can filter the calls of its workers without no_new_privs: it has
// CAP_SYS_ADMIN, or no_new_privs itself.
func Privileged() bool {
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return proc.May(unix.CAP_SYS_ADMIN) || err == nil && set == 1
}

// Mode says whether bind(2) of a program is answered.
type Mode string

// The modes.
const (
	Auto Mode = "auto" // where that takes nothing away from the program: with CAP_SYS_ADMIN or no_new_privs
	On   Mode = "on"   // with no_new_privs if need be
	Off  Mode = "off"
)

// Unanswered returns why bind(2) of a program is not answered in this mode, and what to write, for people; "": it is.
// unprivileged says that the program has no_new_privs anyway. The error says why the mode On is impossible here.
func (m Mode) Unanswered(unprivileged bool) (why string, err error) {
	if m == Off || m == "" {
		return `write bind = "auto" or "on" in place of "off"`, nil
	}
	if m == Auto && !unprivileged && !Privileged() {
		return `write bind = "on", which disables sudo and other setuid programs below the worker`, nil
	}
	if err = Try(); err != nil && m == Auto {
		return fmt.Sprintf("bind is off here (%v); remove what forbids it", err), nil
	}
	return "", err
}

// Try returns why this process cannot answer bind(2) of its workers; nil: it can. It tries with a process that does
// nothing else, until the kernel has said yes or no: that is remembered. A busy machine is neither, and Try waits for
// that for some trials; the next call begins again.
func Try() error { return known.result(try) }

var known means

// means is what is known of the means to answer.
type means struct {
	mu   sync.Mutex
	sure bool
	err  error
}

// trials is how often a trial is made before a machine is taken for too busy.
const trials = 5

// result returns what is known, or makes trials. Callers wait for each other: two trials at once would answer nothing
// that one does not.
func (m *means) result(try func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := 0; !m.sure && n < trials; n++ {
		m.err = try()
		m.sure = !errors.Is(m.err, errDelayed) && !errors.Is(m.err, errSlow)
	}
	return m.err
}

// trialTimeout is how long the process of a trial may take.
const trialTimeout = 5 * time.Second

var errSlow = fmt.Errorf("a trial was not answered within %s", trialTimeout)

// trialAddress is what the process of a trial binds. It is never bound: the socket that the process gets is not.
var trialAddress = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1)

// try makes one trial with the real mechanism: a process with the filter binds, and gets a socket in the place of its
// own. Both sockets are closed at the end; neither is ever bound to an address.
func try() error {
	lane, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(lane)
	own, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	t := trial{Answerer: Answerer{FD: -1}}
	t.Listeners = []Offer{{
		Name: "of a trial", Binds: Claim{Network: "tcp", At: trialAddress}, Alone: func() bool { return true },
		Socket: func() int {
			t.asked = true
			fd, err := unix.FcntlInt(uintptr(lane), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return -1
			}
			return fd
		},
	}}
	t.Looks, t.Key, t.Told = new(foreign.Looks), &t, func(err error) { t.refused = err }
	return t.run(&spawn.Execution{
		Command: []string{"bind"}, Files: []int{spawn.Closed, spawn.Closed, spawn.Closed, own}, Filter: Filter(),
		Limits: spawn.Limits{NoNewPrivileges: !Privileged()}, Trial: sockaddr(trialAddress),
	})
}

// sockaddr is a struct sockaddr_in, ip(7).
func sockaddr(at netip.AddrPort) []byte {
	raw := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
	raw = append(binary.BigEndian.AppendUint16(raw, at.Port()), at.Addr().AsSlice()...)
	return append(raw, make([]byte, unix.SizeofSockaddrInet4-len(raw))...)
}

// trial is a process that binds, and what came of it.
type trial struct {
	Answerer
	report  []byte
	asked   bool
	refused error
}

// run forks the process of a trial, follows it to its end, and says in what it failed. The calling goroutine answers,
// so that no other thread is needed.
func (t *trial) run(what *spawn.Execution) error {
	launch, failure := spawn.Prepare(what)
	if failure != nil {
		return failure
	}
	defer launch.Close()
	defer unix.Close(launch.Report)
	_, pidfd, failure := launch.Fork(-1)
	launch.Close()
	if failure != nil {
		return failure
	}
	defer reap(pidfd)
	err := t.follow(launch.Report)
	if t.FD >= 0 {
		unix.Close(t.FD)
	}
	_, failed := spawn.ParseReport(t.report, what)
	switch {
	case failed != nil && t.FD < 0:
		return explain(failed)
	case t.refused != nil:
		return t.refused
	case failed != nil:
		return failed
	case err == nil && !t.asked:
		return errors.New("a trial ended before it was answered")
	}
	return err
}

// follow reads the report to its end, and answers meanwhile.
func (t *trial) follow(report int) error {
	for end := time.Now().Add(trialTimeout); time.Now().Before(end); {
		poll := []unix.PollFd{{Fd: int32(report), Events: unix.POLLIN}, {Fd: int32(t.FD), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, int(time.Until(end).Milliseconds())+1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return err
		}
		if t.FD >= 0 && poll[1].Revents&unix.POLLIN != 0 {
			t.Answer()
		}
		if poll[0].Revents == 0 {
			continue
		}
		var buf [64]byte
		n, filter, err := spawn.ReadReport(report, buf[:])
		if filter >= 0 {
			t.FD = filter
		}
		switch {
		case err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return err
		case err == nil && n == 0:
			return nil
		case n > 0:
			t.report = append(t.report, buf[:n]...)
		}
	}
	return errSlow
}

// reap ends a process, and waits for it unless the reaper of all children has done so.
func reap(pidfd int) {
	unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)        //nolint:errcheck // it may have ended
	unix.Waitid(unix.P_PIDFD, pidfd, nil, unix.WEXITED, nil) //nolint:errcheck // likewise
	unix.Close(pidfd)
}

// explain adds to the errno of seccomp(2) what to do about it.
func explain(errno error) error {
	switch {
	case errors.Is(errno, unix.EBUSY):
		return fmt.Errorf("%w: the kernel allows one seccomp listener, and supervisord runs below another one (LXD, "+
			"sysbox, another supervisord)", errno)
	case errors.Is(errno, unix.EACCES):
		return fmt.Errorf("%w: without CAP_SYS_ADMIN it needs no_new_privileges = true, which disables setuid programs "+
			"such as sudo below the worker", errno)
	}
	return fmt.Errorf("%w: a sandbox forbids seccomp(2), as SystemCallFilter= of a unit without seccomp", errno)
}

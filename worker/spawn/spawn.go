// Package spawn makes a process and lets it become a command. The new process, a copy of this one by fork, arranges
// what cannot be done from outside (process group, descriptors, signal dispositions and mask, limits, user,
// capabilities, directory, LISTEN_PID) and then executes the command. It reports which step failed, and why, over a
// pipe that the exec closes.
//
//	Prepare   fills an area of memory with everything that the child needs: the calls in their order, and their texts
//	Fork      clone3(2) into the control group, or clone(2) (CLONE_PIDFD, Linux 5.2); the child has a copy of the memory
//	become    the child makes one call after the other, with its own stack and without the Go runtime
//	report    '*' with the descriptor of the filter, if there is one; '+' before the exec; a message if something fails
//	exec      closes the report: its end without a message after '+' says that the command runs
//
// The order of the steps is that of their rights: what needs the supervisor's comes before the user is set, and what
// the user must be able to do comes after; limits come last, so that they apply to the command and not to the steps.
//
// The descriptors in an Execution stay the caller's, and must be open until Fork has returned. A Launch owns the area
// and the child's end of the report, until Close; the other end is the caller's. Forks may happen on any goroutine, one
// at a time: syscall.ForkLock.
package spawn

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Closed stands for a descriptor that the command does not have, in Execution.Files.
const Closed = -1

// DefaultPath is where a command without a slash is looked for if its environment has no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Execution is what a process becomes.
type Execution struct {
	Command []string
	// complete but for LISTEN_PID, which is added beside LISTEN_FDS, and WATCHDOG_PID beside WATCHDOG_USEC
	Environment []string
	Directory   string // "": the caller's
	Files       []int  // the command's descriptors, by number, at least 0 to 2
	Credential  *Credential
	Limits      Limits

	// Filter is a seccomp filter for the command and all processes below it, whose notifications come to us: see
	// ReadReport. It needs CAP_SYS_ADMIN, or Limits.NoNewPrivileges. None: no filter.
	Filter []unix.SockFilter

	// Trial is a sockaddr, bind(2), to which the process binds the last of Files before it ends, instead of executing
	// Command: a trial of Filter. None: no trial.
	Trial []byte
}

// Credential is whom a command runs as.
type Credential struct {
	UID, GID uint32
	Groups   []uint32 // supplementary
}

// unchanged is -1, with which setresuid(2) succeeds and changes nothing.
const unchanged = 1<<32 - 1

// Owner returns the user who must own the files of the command; -1: the caller's own user.
func (c *Credential) Owner() int {
	if c == nil || c.UID == unchanged {
		return -1
	}
	return int(c.UID)
}

// Limits are process attributes that are set between fork and exec.
type Limits struct {
	RLimits             map[string]uint64 // soft limits by name ("nofile", "core", "nproc", …); RLimitInfinity: unlimited
	Umask               *int
	Nice                *int
	OOMScoreAdj         *int
	NoNewPrivileges     bool
	IgnoreSIGPIPE       bool
	AmbientCapabilities []string // "CAP_NET_BIND_SERVICE", any case, prefix optional
}

// RLimitInfinity is "unlimited" (RLIM_INFINITY).
const RLimitInfinity = ^uint64(0)

// Launch is a command that is ready to be forked.
type Launch struct {
	Report int // what the process says comes here, until its end: see ReadReport, ParseReport. The caller closes it
	writer int // the process's end of Report; -1: closed
	area   *area
	plan   *plan // in area
}

// Prepare opens what a fork of c needs. The caller must Close it. The descriptors in c must stay open until Fork has
// returned.
func Prepare(c *Execution) (*Launch, *StepError) {
	read, write, err := reportChannel(c)
	if err != nil {
		return nil, failed(codeFork, err)
	}
	p, a, failure := newPlan(c, write)
	if failure != nil {
		unix.Close(read)
		unix.Close(write)
		return nil, failure
	}
	return &Launch{Report: read, writer: write, area: a, plan: p}, nil
}

// Close closes everything but Report. It may be called twice.
func (l *Launch) Close() {
	if l.writer >= 0 {
		unix.Close(l.writer)
		l.area.close()
		l.writer, l.plan = -1, nil
	}
}

// seals make a memfd immutable.
const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Sealed makes an immutable memfd that contains data of any size, to be read from its beginning.
func Sealed(name string, data []byte) (int, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, fmt.Errorf("cannot create a memfd: %w", err)
	}
	for at := 0; at < len(data) && err == nil; {
		var n int
		n, err = unix.Pwrite(fd, data[at:], int64(at))
		at += max(n, 0)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("cannot write to a memfd: %w", err)
	}
	return fd, nil
}

// Pipe makes a pipe whose reading end does not block; the writing end blocks, as programs expect.
func Pipe() (read, write int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("cannot make a pipe: %w", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return -1, -1, fmt.Errorf("cannot make a pipe: %w", err)
	}
	return p[0], p[1], nil
}

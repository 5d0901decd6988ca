//go:build amd64

package faults

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/proc"
)

// site is one system call of an operation. It is the ordinal-th, from 1, of its kind since the seam was watched.
type site struct {
	kind
	ordinal int
}

// kind says which calls are counted together.
type kind struct {
	// "master"; "child", which has not executed its command yet; "rehearsal", the new binary that tries a takeover
	who  string
	call string // "openat"
	what string // what its arguments mean: "{dir}/config.toml O_RDONLY"
}

func (s site) String() string { return fmt.Sprintf("%s: %s(%s) #%d", s.who, s.call, s.what, s.ordinal) }

// fault is what happens to a call instead of itself: it fails, or reads or writes only half of what it was asked to.
type fault struct {
	errno syscall.Errno
	half  bool
}

func (f fault) String() string {
	if f.half {
		return "half of it"
	}
	return unix.ErrnoName(f.errno)
}

// seam is where a supervisord meets the kernel: the kernel asks here about each of its system calls.
type seam struct {
	dir string

	mu      sync.Mutex
	master  int
	counts  map[kind]int // nil: nobody watches
	target  site
	fault   fault
	hit     chan struct{} // closed when the fault has happened
	failure error
}

// question and answer are struct seccomp_notif and struct seccomp_notif_resp of linux/seccomp.h.
type question struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// launch starts supervisord behind the seam.
func (s *seam) launch(m *lab.Supervisord, args ...string) {
	listener := filtered(m)
	m.Launch(args...)
	s.mu.Lock()
	s.master = m.PID()
	s.mu.Unlock()
	go s.answer(listener())
}

// answer answers the kernel until the last process behind the seam has ended.
func (s *seam) answer(listener int) {
	defer unix.Close(listener)
	const flag = unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
	ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, flag) //nolint:errcheck // it is only faster
	for {
		ready := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err == unix.EINTR {
			continue
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			return // POLLHUP
		}
		q := question{}
		switch err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&q))); err {
		case nil:
		case unix.EINTR, unix.ENOENT: // the caller was killed meanwhile
			continue
		default:
			s.fail(err)
			return
		}
		a := s.decide(&q)
		a.id = q.id
		if err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a))); err != nil &&
			err != unix.ENOENT {
			s.fail(err)
			return
		}
	}
}

// fail keeps the first error, for the end of the test.
func (s *seam) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = cmp.Or(s.failure, err)
}

func ioctl(fd int, request uint, arg uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), arg); errno != 0 {
		return errno
	}
	return nil
}

// decide answers one question.
func (s *seam) decide(q *question) answer {
	carryOn := answer{flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		return carryOn
	}
	who := s.who(int(q.pid))
	if who == "" {
		return carryOn
	}
	k := s.kind(who, q)
	s.counts[k]++
	if s.hit == nil || s.target != (site{k, s.counts[k]}) {
		return carryOn
	}
	close(s.hit)
	s.hit = nil
	if s.fault.half {
		return s.halve(q)
	}
	return answer{errno: -int32(s.fault.errno)}
}

// who says which of supervisord's processes makes a call; "" for one that has executed another program.
func (s *seam) who(thread int) string {
	if exe, err := os.Readlink(proc.Path(thread, "exe")); err != nil ||
		strings.TrimSuffix(exe, " (deleted)") != lab.Built.Supervisord {
		return ""
	}
	if syscall.Access(fmt.Sprintf("/proc/%d/task/%d", s.master, thread), 0) == nil {
		return "master"
	}
	const forkedNotExecuted = 0x40 // PF_FORKNOEXEC of linux/sched.h; each thread but the first has it
	stat, _ := os.ReadFile(proc.Path(group(thread), "stat"))
	fields := bytes.Fields(append(stat[bytes.LastIndexByte(stat, ')')+1:], "none"...))
	switch flags, err := strconv.Atoi(string(fields[min(6, len(fields)-1)])); {
	case err != nil:
		return ""
	case flags&forkedNotExecuted != 0:
		return "child"
	}
	return "rehearsal"
}

// group returns the process that a thread belongs to; 0: none.
func group(thread int) int {
	status, _ := proc.Status(thread)
	pid, _ := strconv.Atoi(status["Tgid"])
	return pid
}

// count begins to count the calls anew. From now on the site fails, once, if it comes; hit is closed then.
func (s *seam) count(at site, f fault) (hit <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts, s.target, s.fault, s.hit = map[kind]int{}, at, f, make(chan struct{})
	return s.hit
}

// failed returns why the seam works no more; nil: it works.
func (s *seam) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// rest ends the counting.
func (s *seam) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts, s.hit = nil, nil
}

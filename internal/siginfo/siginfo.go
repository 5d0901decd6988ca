// Package siginfo catches signals together with who sent them (si_pid and si_uid in sigaction(2)), which os/signal does
// not tell.
//
// The handler of the Go runtime is replaced by one of a few instructions, which writes the siginfo_t to a pipe. It runs
// on any thread, on the stack that the runtime has for signals, and touches nothing of Go. The kernel prefers the main
// thread, which has little else to do.
package siginfo

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// Caught is one that this process got.
type Caught struct {
	Number syscall.Signal
	Code   int // si_code: SI_USER, SI_KERNEL, …
	PID    int // of the sender; 0: the kernel, or a process outside of this PID namespace
	UID    uint32
	Sender Sender // what was found out about PID at once
}

// FromKernel is the Code of a signal that no process sent, such as that of Ctrl-C at a terminal.
const FromKernel = 0x80 // SI_KERNEL

// String writes s for Parse, without its Sender.
func (s Caught) String() string {
	return fmt.Sprintf("%d/%d/%d/%d", int(s.Number), s.Code, s.PID, s.UID)
}

// Parse reads what String has written.
func Parse(text string) (s Caught, err error) {
	_, err = fmt.Sscanf(text, "%d/%d/%d/%d", &s.Number, &s.Code, &s.PID, &s.UID)
	if err != nil || s.String() != text || s.Number <= 0 || s.PID < 0 {
		return Caught{}, fmt.Errorf("not a signal: %q", text)
	}
	return s, nil
}

// raw is the kernel's siginfo_t of a signal that a process or a terminal sent, on a machine with 64 bits.
type raw struct {
	number, errno, code, _ int32
	pid                    int32
	uid                    uint32
	_                      [104]byte
}

func (s Caught) raw() *raw {
	return &raw{number: int32(s.Number), code: int32(s.Code), pid: int32(s.PID), uid: s.UID}
}

func (r *raw) signal() Caught {
	return Caught{Number: syscall.Signal(r.number), Code: int(r.code), PID: int(r.pid), UID: r.uid}
}

func (r *raw) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r)) }

// sigset returns the kernel's set of these signals.
func sigset(signals []syscall.Signal) (set unix.Sigset_t) {
	for _, sig := range signals {
		set.Val[0] |= 1 << (sig - 1)
	}
	return set
}

// sigsetSize is that of the kernel's sigset_t, in bytes.
const sigsetSize = 8

// Disposition is the kernel's struct of rt_sigaction(2), with room for any architecture's.
type Disposition struct {
	handler uintptr
	rest    [15]uint64
}

// The kernel's handlers.
var (
	Default = Disposition{}           // SIG_DFL
	Ignore  = Disposition{handler: 1} // SIG_IGN
)

// Set changes what the kernel does about a signal, behind the back of Go's runtime, and returns what it did before.
func (a Disposition) Set(sig syscall.Signal) (before Disposition) {
	rtSigaction(sig, &a, &before)
	return before
}

func rtSigaction(sig syscall.Signal, action, before *Disposition) {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(action)),
		uintptr(unsafe.Pointer(before)), sigsetSize, 0, 0)
}

// Pending takes those of the signals for which the kernel has not called a handler yet. It drops them when their
// handler is changed.
func Pending(signals []syscall.Signal) (taken []Caught) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set, before := sigset(signals), unix.Sigset_t{}
	if unix.PthreadSigmask(unix.SIG_BLOCK, &set, &before) != nil { // sigtimedwait(2) may take only what is blocked
		return nil
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) //nolint:errcheck // its arguments are right
	for {
		var now unix.Timespec
		var info raw
		_, _, err := unix.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)),
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&now)), sigsetSize, 0, 0)
		if err == unix.EINTR {
			continue
		}
		if err != 0 {
			return taken
		}
		taken = append(taken, info.signal())
	}
}

// What the handler uses.
var (
	pipe     uint32        // the writing end
	handling atomic.Uint32 // handlers under way
)

// handlerAddress is where the handler begins, in handler_*.s.
var handlerAddress uintptr

// Again gives this process signals once more, with their senders.
func Again(signals []Caught) {
	for _, s := range signals {
		if fd := atomic.LoadUint32(&pipe); fd > 0 {
			unix.Write(int(fd), s.raw().bytes()) //nolint:errcheck // a full pipe has hundreds of them
		} else {
			unix.Kill(os.Getpid(), s.Number) //nolint:errcheck // to itself
		}
	}
}

// Queues take the signals that are caught. One that is full takes no more.
type Queues map[syscall.Signal]chan Caught

// Catcher catches signals.
type Catcher struct {
	queues Queues
	read   *os.File
	mu     sync.Mutex // held while signals are on their way from the pipe to their queues
}

// Catch begins to catch the signals that have queues. There is one Catcher in a process, and it has no end. The calling
// thread, which must live on, takes the signals even if the process was started with them blocked.
func Catch(queues Queues) (*Catcher, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("cannot make a pipe for signals: %w", err)
	}
	atomic.StoreUint32(&pipe, uint32(p[1]))
	c := &Catcher{queues: queues, read: os.NewFile(uintptr(p[0]), "signals")}
	var numbers []syscall.Signal
	for sig := range queues {
		numbers = append(numbers, sig)
		catch(sig)
	}
	set := sigset(numbers)
	if err := unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil); err != nil {
		return nil, fmt.Errorf("cannot unblock signals: %w", err)
	}
	go c.pump()
	return c, nil
}

// catch installs the handler, with the flags, the mask and the restorer of the runtime's own handlers.
func catch(sig syscall.Signal) {
	var a Disposition
	rtSigaction(unix.SIGSEGV, nil, &a)
	a.handler = handlerAddress
	a.Set(sig)
}

func (c *Catcher) pump() {
	conn, err := c.read.SyscallConn()
	for err == nil {
		err = conn.Read(func(fd uintptr) bool { return c.empty(int(fd)) })
	}
}

// empty moves everything from the pipe to the queues. It returns false if there was nothing.
func (c *Catcher) empty(fd int) (some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var info raw
		n, err := unix.Read(fd, info.bytes())
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n < len(info.bytes()) {
			return some
		}
		some = true
		s := info.signal()
		s.Sender = senderOf(s.PID)
		select {
		case c.queues[s.Number] <- s:
		default:
		}
	}
}

// Take takes everything that was caught and not read from its queue. The handlers must be replaced before.
func (c *Catcher) Take() (signals []Caught) {
	for handling.Load() > 0 {
		runtime.Gosched() // it ends in a moment
	}
	if conn, err := c.read.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { c.empty(int(fd)) }) //nolint:errcheck // it is open
	}
	for _, q := range c.queues {
		for len(q) > 0 {
			signals = append(signals, <-q)
		}
	}
	return signals
}

// Sender is a process that sent a signal, as far as it was still there to be looked at.
type Sender struct {
	Name    string // "": the process had ended
	Lineage []int  // its PID, those of its ancestors below this process, and that of its session
}

// senderOf finds out who a process is. None of what it reads waits for that process (see foreign.Looks), so every
// signal can wait for it.
func senderOf(pid int) Sender {
	if pid <= 0 {
		return Sender{}
	}
	s := Sender{Name: proc.Name(pid), Lineage: []int{pid}}
	stat, err := proc.ReadStat(pid)
	self := os.Getpid()
	for parent := stat.Parent; err == nil; parent, err = proc.Parent(parent) {
		if parent <= 1 || parent == self {
			s.Lineage = append(s.Lineage, stat.Session)
			break
		}
		s.Lineage = append(s.Lineage, parent)
	}
	return s
}

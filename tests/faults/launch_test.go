//go:build amd64

// Package faults has the system calls of a running supervisord fail, one at a time.
package faults

import (
	"debug/elf"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// launchWord is the first argument of a test binary that is to install the filter and to execute the command behind it.
const launchWord = "execute-under-a-filter"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == launchWord {
		fmt.Fprintln(os.Stderr, "launcher:", launch(os.Args[2:]))
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == workerWord {
		if err := answerOnTwoListeners(); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(9)
		}
		os.Exit(0)
	}
	lab.Main(m)
}

// launch executes a command under a filter that asks about every system call, and sends the descriptor on which the
// kernel asks through the socket with the number 3. The filter is on this thread only, so that another one can send.
func launch(argv []string) error {
	runtime.LockOSThread()
	unix.CloseOnExec(3)
	if os.Geteuid() != 0 {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	listeners, sent := make(chan int), make(chan error)
	go func() { sent <- unix.Sendmsg(3, []byte{0}, unix.UnixRights(<-listeners), nil, 0) }()
	listener, err := installFilter(argv[0])
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	listeners <- listener
	if err := <-sent; err != nil {
		return err
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}

// installFilter puts a filter on this thread that asks about every system call that is not in unasked, and returns the
// descriptor on which it asks. The workers of the binary are of ours, and nobody asks about what they call: it would be
// about a dozen times for each request.
func installFilter(binary string) (int, error) {
	const load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS // 32 bits of struct seccomp_data
	var filter []unix.SockFilter
	if ours := callAddress(); ours != 0 && !callsAt(binary, ours) {
		equal := unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: ours, Jf: 1}
		filter = []unix.SockFilter{{Code: load, K: 8}, equal, allow}
	}
	filter = append(filter, unix.SockFilter{Code: load})
	for _, u := range unasked {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(u.nr),
			Jf: uint8(len(u.unless) + 1)})
		filter = append(filter, u.unless...)
		filter = append(filter, allow)
	}
	filter = append(filter, ask)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// Go interrupts its threads with signals: a call that was asked about must not be interrupted and asked about again.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// callAddress is where this binary is after a system call of package syscall; 0: unknown.
func callAddress() uint32 {
	text := strings.TrimSpace(lab.Text("/proc/thread-self/syscall")) // of the read(2) that reads it
	at, _ := strconv.ParseUint(text[strings.LastIndex(text, "x")+1:], 16, 32)
	return uint32(at)
}

// callsAt reports whether a binary may make a system call at an address, too.
func callsAt(binary string, at uint32) bool {
	f, err := elf.Open(binary)
	if err != nil {
		return true
	}
	defer f.Close()
	for _, p := range f.Progs {
		if before := uint64(at) - 2; p.Type == elf.PT_LOAD && before >= p.Vaddr && before < p.Vaddr+p.Filesz {
			code := make([]byte, 2)
			_, err := p.ReadAt(code, int64(before-p.Vaddr))
			return err != nil || string(code) == "\x0f\x05" // syscall
		}
	}
	return f.Type != elf.ET_EXEC
}

var (
	allow = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	ask   = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF}
)

// when asks if an argument of a call, and a mask, give a value.
func when(argument int, mask, value uint32) []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(16 + 8*argument)},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: 1},
		ask,
	}
}

// filtered makes m execute the next supervisord under the filter, and returns the function that takes the descriptor on
// which the kernel asks.
func filtered(m *lab.Supervisord) (listener func() int) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	lab.Must(m.T, err)
	m.Via = []string{lab.Built.Self, launchWord}
	m.Files = []*os.File{os.NewFile(uintptr(pair[1]), "launcher")}
	return func() int {
		f := os.NewFile(uintptr(pair[0]), "launcher")
		defer f.Close()
		conn, err := net.FileConn(f)
		lab.Must(m.T, err)
		defer conn.Close()
		oob := make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), oob)
		lab.Must(m.T, err)
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		lab.Must(m.T, err)
		if len(messages) == 0 {
			m.T.Fatal("the launcher has not sent its listener: does the kernel have seccomp?")
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		lab.Must(m.T, err)
		return fds[0]
	}
}

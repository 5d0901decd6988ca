package lab

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// Cmdline is the command line of a process, with spaces between the arguments; "" if there is no such process.
func Cmdline(pid int) string {
	return strings.ReplaceAll(strings.TrimRight(Text(proc.Path(pid, "cmdline")), "\x00"), "\x00", " ")
}

// Alive reports whether a process runs; a zombie does not.
func Alive(pid int) bool {
	p, err := proc.ReadStat(pid)
	return err == nil && !p.Dead()
}

// ProcStatus is /proc/PID/status; empty if there is no such process.
func ProcStatus(pid int) map[string]string {
	found, _ := proc.Status(pid)
	return found
}

// Descriptors says where the descriptors of a process lead, by number.
func Descriptors(t testing.TB, pid int) map[int]string {
	t.Helper()
	found, err := proc.Descriptors(pid)
	Must(t, err)
	return found
}

// DescriptorKinds counts the descriptors of a process by what they lead to. The directory of the notify sockets has
// another name each time.
func DescriptorKinds(t testing.TB, pid int) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, to := range Descriptors(t, pid) {
		kind, _, _ := strings.Cut(to, ":[")
		kind, _, _ = strings.Cut(kind, "/notify.")
		found[kind]++
	}
	return found
}

// Switches counts how often a process has waited for something, in all its threads.
func Switches(t testing.TB, pid int) int {
	t.Helper()
	tasks, err := os.ReadDir(proc.Path(pid, "task"))
	Must(t, err)
	sum := 0
	for _, task := range tasks {
		_, rest, _ := strings.Cut(Text(proc.Path(pid, "task/"+task.Name()+"/status")), "\nvoluntary_ctxt_switches:")
		n := 0
		fmt.Sscan(rest, &n) // nothing, if the thread has ended
		sum += n
	}
	return sum
}

// listening maps the inodes of the listening TCP sockets to their addresses, in the network of this thread: a test may
// have taken the first thread, whose network /proc/net shows, into another one (package netns).
func listening(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	for l := range strings.Lines(Text("/proc/thread-self/net/tcp") + Text("/proc/thread-self/net/tcp6")) {
		fields := strings.Fields(l)
		if len(fields) < 10 || fields[3] != "0A" {
			continue
		}
		host, hex, _ := strings.Cut(fields[1], ":")
		port, _ := strconv.ParseUint(hex, 16, 16)
		ip := "127.0.0.1"
		if len(host) == 32 && host != strings.Repeat("0", 32) {
			ip = "::1"
		}
		found["socket:["+fields[9]+"]"] = net.JoinHostPort(ip, strconv.FormatUint(port, 10))
	}
	return found
}

// Addresses are the TCP addresses that a process listens on, in the order of its descriptors.
func Addresses(t testing.TB, pid int) []string {
	t.Helper()
	at, fds := listening(t), Descriptors(t, pid)
	var numbers []int
	for n, to := range fds {
		if at[to] != "" {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	var found []string
	for _, n := range numbers {
		found = append(found, at[fds[n]])
	}
	return found
}

// Steal copies a descriptor of another process, to ask the kernel about the socket behind it (pidfd_getfd(2)).
func Steal(t testing.TB, pid, fd int) int {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	Must(t, err)
	defer unix.Close(pidfd)
	n, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err == unix.EPERM {
		t.Skip("this needs permission to trace supervisord (CAP_SYS_PTRACE, or kernel.yama.ptrace_scope = 0)")
	}
	Must(t, err)
	t.Cleanup(func() { unix.Close(n) })
	return n
}

// Left returns which of the processes that list finds live on. What was killed is waited for; what was not has half a
// second to end.
func Left(list func() []int) []int {
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		left := list()
		doomed := !slices.ContainsFunc(left, func(pid int) bool { return !killed(pid) })
		waited := time.Since(began)
		if len(left) == 0 || waited > Patience || !doomed && waited > 500*time.Millisecond {
			return left
		}
	}
}

// killed reports whether a process has gone, or was sent KILL and has not come to it yet: see proc_pid_status(5).
func killed(pid int) bool {
	status, err := proc.Status(pid)
	if err != nil {
		return true
	}
	for _, pending := range []string{status["SigPnd"], status["ShdPnd"]} {
		if set, err := strconv.ParseUint(pending, 16, 64); err == nil && set&(1<<(syscall.SIGKILL-1)) != 0 {
			return true
		}
	}
	return strings.HasPrefix(status["State"], "Z") || strings.HasPrefix(status["State"], "X")
}

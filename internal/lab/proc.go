package lab

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Connected reports whether a client is connected to a unix socket.
func Connected(path string) bool {
	text, _ := os.ReadFile("/proc/net/unix")
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) == 8 && f[5] == "03" && f[7] == path {
			return true
		}
	}
	return false
}

// Cmdline is /proc/PID/cmdline with spaces between the arguments; "" when there is no such process.
func Cmdline(pid int) string {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(strings.TrimRight(string(raw), "\x00"), "\x00", " ")
}

// Alive reports whether a process runs; a zombie does not.
func Alive(pid int) bool {
	state := ProcStatus(pid)["State"]
	return state != "" && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// ProcStatus is /proc/PID/status; empty when there is no such process.
func ProcStatus(pid int) map[string]string {
	return Table(fmt.Sprintf("/proc/%d/status", pid))
}

// Table reads a file of lines "KEY: VALUE"; it is empty when there is no such file.
func Table(path string) map[string]string {
	raw, _ := os.ReadFile(path)
	found := map[string]string{}
	for l := range strings.Lines(string(raw)) {
		if k, v, ok := strings.Cut(l, ":"); ok {
			found[k] = strings.TrimSpace(v)
		}
	}
	return found
}

// Environment is what a process was executed with.
func Environment(t testing.TB, pid int) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	Must(t, err)
	found := map[string]string{}
	for kv := range strings.SplitSeq(strings.TrimRight(string(raw), "\x00"), "\x00") {
		k, v, _ := strings.Cut(kv, "=")
		found[k] = v
	}
	return found
}

// Descriptors says where those of a process lead, by number.
func Descriptors(t testing.TB, pid int) map[int]string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	Must(t, err)
	found := map[int]string{}
	for _, e := range entries {
		n, _ := strconv.Atoi(e.Name())
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil {
			found[n] = to
		}
	}
	return found
}

// FDFlags are the flags of a descriptor of a process, as open(2) has them.
func FDFlags(t testing.TB, pid, fd int) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(Table(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))["flags"], 8, 64)
	Must(t, err)
	return n
}

// SoftLimit is a line of /proc/PID/limits: "Max open files".
func SoftLimit(t testing.TB, pid int, name string) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	Must(t, err)
	for l := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(l, name); ok {
			return strings.Fields(rest)[0]
		}
	}
	t.Fatalf("there is no limit %q", name)
	return ""
}

// ProcessGroup is the process group.
func ProcessGroup(pid int) int {
	group, _ := unix.Getpgid(pid)
	return group
}

// Listening maps the inodes of the TCP sockets that listen to their addresses.
func Listening(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		for in := bufio.NewScanner(f); in.Scan(); {
			fields := strings.Fields(in.Text())
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
		f.Close()
	}
	return found
}

// Addresses are those that a process listens on by TCP, in the order of its descriptors.
func Addresses(t testing.TB, pid int) []string {
	t.Helper()
	at := Listening(t)
	fds := Descriptors(t, pid)
	var numbers []int
	for n, to := range fds {
		if at[to] != "" {
			numbers = append(numbers, n)
		}
	}
	sort.Ints(numbers)
	var found []string
	for _, n := range numbers {
		found = append(found, at[fds[n]])
	}
	return found
}

// Steal gets a descriptor of another process, to ask the kernel about the socket behind it (pidfd_getfd(2)).
func Steal(t testing.TB, pid, fd int) int {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	Must(t, err)
	defer unix.Close(pidfd)
	n, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err == unix.EPERM {
		t.Skip("this needs the right to trace the supervisord (CAP_SYS_PTRACE, or kernel.yama.ptrace_scope = 0)")
	}
	Must(t, err)
	t.Cleanup(func() { unix.Close(n) })
	return n
}

// Switches counts how often a process has waited for something, in all its threads.
func Switches(t testing.TB, pid int) int {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	Must(t, err)
	sum := 0
	for _, task := range tasks {
		n, _ := strconv.Atoi(Table(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))["voluntary_ctxt_switches"])
		sum += n
	}
	return sum
}

// DescriptorKinds counts the descriptors of a process by what they lead to. The directory of the notify sockets has another name each time.
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

func ChildrenOf(pid int) []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		p := 0
		if fmt.Sscan(e.Name(), &p); p > 0 && ProcStatus(p)["PPid"] == fmt.Sprint(pid) {
			found = append(found, p)
		}
	}
	return found
}

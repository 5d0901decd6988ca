package prove

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is what /proc/PID/stat says, proc_pid_stat(5).
type process struct {
	pid, parent    int
	group, session int
	zombie         bool
	start          string // clock ticks since boot: tells a process from a later one with its number
}

func readProcess(pid int) (process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // from field 3 on; the name may hold anything
	if len(fields) < 20 {
		return process{}, fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	parent, _ := strconv.Atoi(fields[1])
	group, _ := strconv.Atoi(fields[2])
	session, _ := strconv.Atoi(fields[3])
	return process{pid, parent, group, session, fields[0] == "Z" || fields[0] == "X", fields[19]}, nil
}

// processes returns every process that can be seen.
func processes() []process {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(filepath.Base(e))
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// children returns the PIDs of the children of pid, zombies among them. The kernel's own list is used where there is one.
func children(pid int) []int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var pids []int
	for _, list := range lists {
		data, _ := os.ReadFile(list) // a thread that has ended has no children
		for _, text := range strings.Fields(string(data)) {
			if n, err := strconv.Atoi(text); err == nil {
				pids = append(pids, n)
			}
		}
	}
	if len(lists) > 0 {
		return pids
	}
	for _, p := range processes() {
		if p.parent == pid {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// variable returns a variable of the environment that a process was started with.
func variable(pid int, name string) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return "", err
	}
	for _, v := range strings.Split(string(data), "\x00") {
		if value, found := strings.CutPrefix(v, name+"="); found {
			return value, nil
		}
	}
	return "", nil
}

// catches reports whether a process handles a signal; one that does not is ended by HUP.
func catches(pid int, sig syscall.Signal) (bool, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false, err
	}
	_, rest, _ := strings.Cut(string(data), "\nSigCgt:")
	mask, _, _ := strings.Cut(rest, "\n")
	bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
	return bits>>(uint(sig)-1)&1 == 1, err
}

// descriptors counts the open descriptors of a process by what they are.
func descriptors(pid int) (map[string]int, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if kind, _, numbered := strings.Cut(to, ":["); numbered && kind != "anon_inode" {
			to = kind
		}
		count[to]++
	}
	return count, nil
}

// wasKilled reports whether the process behind a pidfd, reaped by its parent, ended by KILL (Linux 6.15 and later know).
func wasKilled(pidfd int) (killed, known bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(pidfd, &info); err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return false, false
	}
	status := syscall.WaitStatus(info.Exit_code)
	return status.Signaled() && status.Signal() == syscall.SIGKILL, true
}

// lockedPID returns the PID in a pid file whose owner lives and holds its lock; 0: there is none.
func lockedPID(path string) (int, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read pid_file: %w", err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return 0, nil // stale
	}
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("pid_file %s is locked but holds no PID: name the process with --pid", path)
	}
	return pid, nil
}

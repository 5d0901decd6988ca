package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MemoryOfTree returns what a process and its descendants use, in bytes. Resident memory (RSS) costs little to read but
// counts a shared page once for each process. So the proportional share (PSS) is read, and returned instead, only if
// the resident memory is more than limit. PSS can be delayed by the process: see the package comment. The error is
// about pid itself: it may have ended.
func MemoryOfTree(pid int, limit uint64) (uint64, error) {
	used, err := resident(pid)
	if err != nil {
		return 0, err
	}
	tree := Descendants(pid)
	for _, p := range tree {
		n, _ := resident(p) // 0: it has ended
		used += n
	}
	if used <= limit {
		return used, nil
	}
	used = 0
	for _, p := range append(tree, pid) {
		used += proportional(p)
	}
	return used, nil
}

// resident reads the RSS of a process from proc_pid_statm(5), where it is exact. That of proc_pid_stat(5) may be 0 for
// a small process: the kernel adds up what each CPU has counted only now and then (Linux 6.2).
func resident(pid int) (uint64, error) {
	text, err := read(Path(pid, "statm"))
	words := strings.Fields(string(text))
	if err != nil || len(words) < 2 {
		return 0, err
	}
	pages, err := strconv.ParseUint(words[1], 10, 48)
	return pages * uint64(os.Getpagesize()), err
}

// proportional reads the PSS of a process (proc_pid_smaps(5)), or its RSS where reading the PSS is not allowed.
func proportional(pid int) uint64 {
	lines, _ := linesOf(ReadFile(pid, "smaps_rollup"))
	if kilobytes, err := strconv.ParseUint(strings.TrimSuffix(lines["Pss"], " kB"), 10, 54); err == nil {
		return kilobytes << 10
	}
	n, _ := resident(pid)
	return n
}

// OwnGroups returns the directories in which the calling process's control group of version 2 may be (cgroups(7)): the
// second one exists where version 1 is mounted beside it. It returns nothing where there is no version 2.
func OwnGroups() []string {
	text, _ := read("/proc/self/cgroup")
	return groupsIn(string(text))
}

// groupsIn reads /proc/PID/cgroup. A group outside of the caller's cgroup namespace, which begins with "/..", cannot be
// seen.
func groupsIn(text string) []string {
	_, path, found := strings.Cut("\n"+text, "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	if !found || strings.Contains("/"+path+"/", "/../") {
		return nil
	}
	return []string{filepath.Join("/sys/fs/cgroup", path), filepath.Join("/sys/fs/cgroup/unified", path)}
}

// GroupMembers lists the processes in a control group.
func GroupMembers(dir string) []int { return readPIDs(filepath.Join(dir, "cgroup.procs")) }

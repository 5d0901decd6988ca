package proc

import (
	"os"
	"path/filepath"
	"strings"
)

// OwnGroups returns the directories in which the calling process's control group of version 2 may be (cgroups(7)): the second one
// exists where version 1 is mounted beside it. It returns nothing where there is no version 2.
func OwnGroups() []string {
	text, _ := os.ReadFile("/proc/self/cgroup")
	return groupsIn(string(text))
}

// groupsIn reads /proc/PID/cgroup. A group outside of the caller's cgroup namespace, which begins with "/..", cannot be seen.
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

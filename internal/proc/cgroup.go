package proc

import (
	"os"
	"path/filepath"
	"strings"
)

// OwnGroups returns the directories in which the calling process's control group of version 2 may be (cgroups(7)): the second one
// exists where version 1 is mounted beside it. It returns nothing where there is no version 2.
func OwnGroups() []string {
	text, err := os.ReadFile("/proc/self/cgroup")
	_, path, found := strings.Cut("\n"+string(text), "\n0::")
	if err != nil || !found {
		return nil
	}
	path, _, _ = strings.Cut(path, "\n")
	return []string{filepath.Join("/sys/fs/cgroup", path), filepath.Join("/sys/fs/cgroup/unified", path)}
}

// GroupMembers lists the processes in a control group.
func GroupMembers(dir string) []int { return readPIDs(filepath.Join(dir, "cgroup.procs")) }

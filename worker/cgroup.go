package worker

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// groupPrefix begins the names of the workers' control groups. The rest is random.
const groupPrefix = "worker-"

// groups makes a control group for each worker (cgroups(7), version 2), so that nothing that a worker has started outlives it,
// whatever it has done to hide. It works where systemd has delegated our own control group to us (Delegate=yes); elsewhere
// there is none (nil), and process groups, the subreaper and killStrays have to do.
type groups struct {
	base string // where they are made

	mu   sync.Mutex
	left []string // those that could not be removed yet: what was killed in them is still ending
}

// findGroups looks whether control groups can be made. Those that a supervisor before us left empty are removed.
func findGroups() *groups {
	for _, own := range proc.OwnGroups() {
		for _, dir := range []string{own, filepath.Dir(own)} { // systemd can start us in a group below the one that is ours
			if !delegated(dir) || !useable(dir) {
				continue
			}
			if dir != own { // in a group with processes of its own nothing can be divided
				writeGroup(dir, "cgroup.subtree_control", "+memory") //nolint:errcheck // then its memory is measured otherwise
			}
			g := &groups{base: dir}
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), groupPrefix) {
					g.left = append(g.left, filepath.Join(dir, e.Name()))
				}
			}
			g.sweep()
			g.left = nil // of workers that live
			return g
		}
	}
	return nil
}

// delegated tells whether systemd says that the group is for its service to divide (since version 244, and 251).
func delegated(dir string) bool {
	var value [8]byte
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		if n, err := unix.Lgetxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// useable tells whether groups may be made here, and killed at once (Linux 5.14).
func useable(dir string) bool {
	return unix.Access(dir, unix.W_OK) == nil && unix.Access(dir+"/cgroup.procs", unix.W_OK) == nil && unix.Access(dir+"/cgroup.kill", unix.W_OK) == nil
}

func writeGroup(dir, file, text string) error {
	fd, err := unix.Open(filepath.Join(dir, file), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}

// make makes a group. Without one, fd is -1: a worker is not refused for that.
func (g *groups) make() (fd int, path string) {
	if g == nil {
		return -1, ""
	}
	var name [8]byte
	rand.Read(name[:]) //nolint:errcheck // it never fails
	path = filepath.Join(g.base, groupPrefix+hex.EncodeToString(name[:]))
	if os.Mkdir(path, 0o755) != nil {
		return -1, ""
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Rmdir(path)
		return -1, ""
	}
	return fd, path
}

// kill kills everything in a group.
func (g *groups) kill(path string) {
	if g != nil && path != "" {
		writeGroup(path, "cgroup.kill", "1") //nolint:errcheck // the process group was killed, too
	}
}

// end kills what is left in a group and removes it, as soon as that is possible.
func (g *groups) end(path string) {
	if g == nil || path == "" {
		return
	}
	g.kill(path)
	g.mu.Lock()
	g.left = append(g.left, path)
	g.mu.Unlock()
	g.sweep()
}

// sweep removes the groups that are empty by now.
func (g *groups) sweep() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = slices.DeleteFunc(g.left, func(path string) bool {
		err := unix.Rmdir(path)
		return err == nil || errors.Is(err, fs.ErrNotExist)
	})
}

// oomKilled tells whether the kernel has killed a process of the group for memory. It knows only where the memory controller
// is there.
func oomKilled(path string) bool { return groupNumber(path, "memory.events", "oom_kill") > 0 }

// groupMemory is what a group uses without the files' pages, which the kernel takes back when it needs them.
func groupMemory(path string) (uint64, bool) {
	text, err := os.ReadFile(filepath.Join(path, "memory.current"))
	if path == "" || err != nil {
		return 0, false
	}
	used, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	cache := groupNumber(path, "memory.stat", "file") - groupNumber(path, "memory.stat", "shmem")
	return used - min(used, cache), err == nil
}

// groupNumber reads a line "key number" of a file of a group; 0 if it is not there.
func groupNumber(path, file, key string) uint64 {
	if path == "" {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(path, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, key+" "); found {
			n, _ := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}

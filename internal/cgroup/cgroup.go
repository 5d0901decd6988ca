// Package cgroup makes a control group of version 2 for each worker (cgroups(7)), so that nothing that a worker started
// outlives it, whatever it did to hide. It works where systemd has delegated our own group to us (Delegate=yes).
package cgroup

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

// prefix begins the names of the workers' groups. The rest is random.
const prefix = "worker-"

// Groups makes and removes groups. A nil *Groups makes none: process groups, the subreaper and the search for strays
// have to do.
type Groups struct {
	base string // where they are made

	mu   sync.Mutex
	left []string // could not be removed yet: what was killed in them is still ending
}

// Find returns the directory in which groups can be made, or "".
func Find() string {
	for _, own := range proc.OwnGroups() {
		for _, dir := range []string{own, filepath.Dir(own)} { // systemd can start us in a group below the one that is ours
			if !delegated(dir) || !usable(dir) {
				continue
			}
			if dir != own { // the kernel does not divide a group that has processes itself
				write(dir, "cgroup.subtree_control", "+memory") //nolint:errcheck // memory is measured otherwise then
			}
			return dir
		}
	}
	return ""
}

// Under returns a Groups that makes its groups in dir; nil if that is "". It removes empty groups of a supervisord
// before this one.
func Under(dir string) *Groups {
	if dir == "" {
		return nil
	}
	g := &Groups{base: dir}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			g.left = append(g.left, filepath.Join(dir, e.Name()))
		}
	}
	g.Sweep()
	g.left = nil // their workers live
	return g
}

// delegated reports whether systemd says that the group is for its service to divide (since version 244, and 251).
func delegated(dir string) bool {
	var value [8]byte
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		if n, err := unix.Lgetxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// usable reports whether groups can be made here, and killed at once (Linux 5.14).
func usable(dir string) bool {
	return unix.Access(dir, unix.W_OK) == nil && unix.Access(dir+"/cgroup.procs", unix.W_OK) == nil &&
		unix.Access(dir+"/cgroup.kill", unix.W_OK) == nil
}

func write(dir, file, text string) error {
	fd, err := unix.Open(filepath.Join(dir, file), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}

// Make makes a group and opens its directory. Without one, fd is -1: no worker fails to start for that.
func (g *Groups) Make() (fd int, path string) {
	if g == nil {
		return -1, ""
	}
	var name [8]byte
	rand.Read(name[:]) //nolint:errcheck // it never fails
	path = filepath.Join(g.base, prefix+hex.EncodeToString(name[:]))
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

// Kill kills every process in a group.
func (g *Groups) Kill(path string) {
	if g != nil && path != "" {
		write(path, "cgroup.kill", "1") //nolint:errcheck // the process group was killed, too
	}
}

// End kills every process in a group, and removes the group as soon as that is possible.
func (g *Groups) End(path string) {
	if g == nil || path == "" {
		return
	}
	g.Kill(path)
	g.mu.Lock()
	g.left = append(g.left, path)
	g.mu.Unlock()
	g.Sweep()
}

// Sweep removes the groups of End that are empty by now.
func (g *Groups) Sweep() {
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

// OOMKilled reports whether the kernel killed a process of the group for memory. It needs the memory controller.
func OOMKilled(path string) bool { return number(path, "memory.events", "oom_kill") > 0 }

// Memory returns what a group uses, in bytes, without the pages of files, which the kernel takes back when it needs
// them.
func Memory(path string) (used uint64, known bool) {
	text, err := os.ReadFile(filepath.Join(path, "memory.current"))
	if path == "" || err != nil {
		return 0, false
	}
	used, err = strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	cache := number(path, "memory.stat", "file") - number(path, "memory.stat", "shmem")
	return used - min(used, cache), err == nil
}

// number reads a line "key number" of a file of a group; 0 if it is not there.
func number(path, file, key string) uint64 {
	if path == "" {
		return 0
	}
	text, _ := os.ReadFile(filepath.Join(path, file))
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, key+" "); found {
			n, _ := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}

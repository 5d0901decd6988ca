package worker

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// killStrays kills what has left the process group of a worker that is gone (setsid(2)): as a subreaper this process has become
// its parent. Which worker it belonged to is known by the NOTIFY_SOCKET in its environment, which goes with the worker.
// A process that has changed its environment is left alone: nothing says whose it is.
//
// The kernel gives orphans to the first thread of a subreaper, which in Go lives as long as the process. So one short list is
// enough; those of the other threads hold only what they forked themselves.
func (l *Launcher) killStrays() {
	for _, pid := range readChildren("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children") {
		l.mu.Lock()
		_, managed := l.children[pid]
		_, expected := l.expected[pid]
		l.mu.Unlock()
		if !managed && !expected && stray(pid) {
			killTree(pid)
		}
	}
}

// stray reports whether the process was started by a worker that is gone.
func stray(pid int) bool {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		path, found := strings.CutPrefix(string(kv), "NOTIFY_SOCKET=")
		if found && strings.HasPrefix(filepath.Base(filepath.Dir(path)), directoryPrefix) {
			_, err := os.Lstat(path)
			return errors.Is(err, fs.ErrNotExist)
		}
	}
	return false
}

// killTree kills a process, its group and everything below it. It is a child of this process, so its number is its own.
func killTree(pid int) {
	below := childrenOf(strconv.Itoa(pid))
	if group, err := unix.Getpgid(pid); err == nil && group == pid {
		unix.Kill(-pid, unix.SIGKILL)
	}
	unix.Kill(pid, unix.SIGKILL)
	for _, child := range below {
		killTree(child)
	}
}

// childrenOf lists the children of a process, of all its threads (proc_pid_task(5); nothing on a kernel without the list).
func childrenOf(process string) []int {
	lists, _ := filepath.Glob("/proc/" + process + "/task/*/children")
	var pids []int
	for _, list := range lists {
		pids = append(pids, readChildren(list)...)
	}
	return pids
}

// readChildren reads one list of children; there is none where the thread is gone.
func readChildren(list string) (pids []int) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil
	}
	for word := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

package handover

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// How long execve(2) is held back while a thread is in a system call that no signal ends, and how often that is looked at.
const (
	hungTimeout = 500 * time.Millisecond
	hungLook    = 20 * time.Millisecond
)

// AwaitDisks returns an error while a thread of this process waits for a disk that hangs, or while writing reports that a file is being
// written. execve(2) would wait with them, and nothing could end that, not even KILL. AwaitDisks waits for as long as any busy disk
// may take.
func AwaitDisks(writing func() error) error {
	timeout, again := time.NewTimer(hungTimeout), time.NewTicker(hungLook)
	defer timeout.Stop()
	defer again.Stop()
	for {
		err := writing()
		if where := hungThread(); where != "" {
			err = fmt.Errorf("a thread waits for a disk or a file system that does not answer (in the kernel: %s)", where)
		}
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-timeout.C:
			return err
		}
	}
}

// hungThread returns where in the kernel a thread waits that no signal wakes; "": there is none (proc_pid_stat(5)).
func hungThread() string {
	const tasks = "/proc/self/task/"
	entries, _ := os.ReadDir(tasks)
	for _, e := range entries {
		stat, err := os.ReadFile(tasks + e.Name() + "/stat")
		if err != nil {
			continue
		}
		if end := bytes.LastIndexByte(stat, ')'); end < 0 || !bytes.HasPrefix(stat[end+1:], []byte(" D")) {
			continue
		}
		if where, err := os.ReadFile(tasks + e.Name() + "/wchan"); err == nil && len(where) > 1 {
			return string(where)
		}
		return "unknown"
	}
	return ""
}

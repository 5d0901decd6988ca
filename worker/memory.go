package worker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"example.org/supervisord/internal/foreign"
)

// measureWithin is how long a worker's memory may take to measure: a process can keep the lock on it from us.
const measureWithin = 10 * time.Second

// Memory measures what the worker and the processes below it use, in bytes; a process that was orphaned does not count. What
// is resident (RSS) costs little to read, but counts a page that several processes share once for each; so only if that is more
// than limit, the proportional share (PSS) is read and returned instead, where the kernel lets us. An error is of the worker's own
// process: it may have ended. Where the worker has a control group with the memory controller, that is asked instead. It takes 10 s at
// most, and ends with the worker.
func (w *Worker) Memory(limit uint64) (uint64, error) {
	w.mu.Lock()
	pid, ended, group := w.process.pid, w.process.ended, w.process.group
	w.mu.Unlock()
	if pid == 0 || ended {
		return 0, os.ErrProcessDone
	}
	if used, ok := groupMemory(group); ok {
		return used, nil
	}
	type answer struct {
		used uint64
		err  error
	}
	ctx, cancel := context.WithTimeout(w.life, measureWithin)
	defer cancel()
	a, err := foreign.Look(ctx, &w.launcher.looks, w, func() answer {
		used, err := usedBy(pid, limit)
		return answer{used, err}
	})
	return a.used, errors.Join(err, a.err)
}

func usedBy(pid int, limit uint64) (uint64, error) {
	used, err := resident(pid)
	if err != nil {
		return 0, err
	}
	tree := below(pid)
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

// below lists all descendants of a process.
func below(pid int) []int {
	var all []int
	for next := []int{pid}; len(next) > 0; {
		children := childrenOf(strconv.Itoa(next[0]))
		all = append(all, children...)
		next = append(next[1:], children...)
	}
	return all
}

// resident is a process's RSS (proc_pid_statm(5)).
func resident(pid int) (uint64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, err
	}
	var pages uint64
	if words := bytes.Fields(text); len(words) > 1 {
		pages, err = strconv.ParseUint(string(words[1]), 10, 64)
	}
	return pages * uint64(os.Getpagesize()), err
}

// proportional is a process's PSS (proc_pid_smaps(5)); where that may not be read, its RSS.
func proportional(pid int) uint64 {
	file, err := os.Open("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err == nil {
		defer file.Close()
		for s := bufio.NewScanner(file); s.Scan(); {
			words := bytes.Fields(s.Bytes())
			if len(words) < 2 || string(words[0]) != "Pss:" {
				continue
			}
			if kilobytes, err := strconv.ParseUint(string(words[1]), 10, 54); err == nil {
				return kilobytes << 10
			}
		}
	}
	n, _ := resident(pid)
	return n
}

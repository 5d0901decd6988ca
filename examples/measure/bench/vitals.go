package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/internal/proc"
)

// vitals is what a process holds and has used.
type vitals struct {
	pss, own     uint64 // bytes of memory: its share of what is resident, and of that what no file has
	fds, threads int
	woken        int // how often a thread, of those that live, went to sleep and was woken
	preempted    int
	// its own CPU time, and that of the children that it has waited for, in hundredths of a second
	cpu, workers time.Duration
}

func vitalsOf(pid int) (v vitals, err error) {
	status, err := proc.Status(pid)
	if err != nil {
		return v, err
	}
	v.threads = number(status["Threads"])
	text, err := os.ReadFile(proc.Path(pid, "smaps_rollup"))
	if err != nil {
		return v, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "Pss":
			v.pss = uint64(number(value)) << 10
		case "Pss_Anon":
			v.own = uint64(number(value)) << 10
		}
	}
	descriptors, err := proc.Descriptors(pid)
	if err != nil {
		return v, err
	}
	v.fds = len(descriptors)
	threads, _ := filepath.Glob(proc.Path(pid, "task/*"))
	for _, path := range threads {
		if status, err := proc.Status(number(filepath.Base(path))); err == nil { // a thread may end meanwhile
			v.woken += number(status["voluntary_ctxt_switches"])
			v.preempted += number(status["nonvoluntary_ctxt_switches"])
		}
	}
	if v.workers, err = childrenCPU(pid); err != nil {
		return v, err
	}
	v.cpu, err = clock.CPU(pid)
	return v, err
}

// childrenCPU returns cutime and cstime of proc_pid_stat(5), whose ticks are hundredths of a second on every Linux.
func childrenCPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(proc.Path(pid, "stat"))
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if err != nil || len(fields) < 15 {
		return 0, errors.Join(err, fmt.Errorf("process %d has %d fields", pid, len(fields)))
	}
	return time.Duration(number(fields[13])+number(fields[14])) * 10 * time.Millisecond, nil
}

// number is the number at the beginning of a text: "1234 kB".
func number(text string) int {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	n, _ := strconv.Atoi(word)
	return n
}

// settled is the vitals of a process at rest: those with the fewest descriptors of eleven looks, since it may just be
// reading a file.
func settled(pid int) (vitals, error) {
	least, err := vitalsOf(pid)
	tick := time.Tick(20 * time.Millisecond)
	for range 10 {
		<-tick
		v, err := vitalsOf(pid)
		if err != nil {
			return v, err
		}
		if v.fds <= least.fds {
			least = v
		}
	}
	return least, err
}

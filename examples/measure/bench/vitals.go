package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/internal/proc"
)

// vitals is what a process holds and has used.
type vitals struct {
	rss, own     uint64 // bytes that are resident: all, and its own
	fds, threads int
	woken        int // how often a thread, of those that live, went to sleep and was woken
	preempted    int
	cpu          time.Duration
}

func vitalsOf(pid int) (v vitals, err error) {
	status, err := proc.Status(pid)
	if err != nil {
		return v, err
	}
	v.rss, v.own, v.threads = uint64(number(status["VmRSS"]))<<10, uint64(number(status["RssAnon"]))<<10, number(status["Threads"])
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
	v.cpu, err = clock.CPU(pid)
	return v, err
}

// number is the number at the beginning of a text: "1234 kB".
func number(text string) int {
	word, _, _ := strings.Cut(text, " ")
	n, _ := strconv.Atoi(word)
	return n
}

// settled is the vitals of a process at rest: those with the fewest descriptors of eleven looks, since it may just be reading a file.
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

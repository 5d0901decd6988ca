package prove

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// glance is how often the children of a supervisord are looked at, whose log cannot be read. Without privileges the kernel tells
// nobody but the parent of a birth, so there is no event to wait for.
const glance = 20 * time.Millisecond

// family watches the workers of a program from outside, by /proc, and tells what it sees as events. Its moments are late by a
// glance, and that a generation serves is seen only when the first worker of the one before has ended.
type family struct {
	master  process
	program string
	size    int // workers of a generation
	workers map[int]*member
	known   map[int]bool // generations with a worker seen
	full    map[int]bool // generations of which every worker was seen at once
	fewer   map[int]bool // generations of which a worker has ended since the next one was full
	serving int
	unknown bool // of some worker it cannot be told how it ended
}

// member is one worker.
type member struct {
	process
	generation int
	pidfd      int // -1: none
}

var errNoWorker = errors.New("it runs no worker of the program")

// newFamily looks for the workers that run now.
func newFamily(pid int, program string, size int) (*family, error) {
	master, err := readProcess(pid)
	if err != nil {
		return nil, fmt.Errorf("there is no process %d: %w", pid, err)
	}
	return &family{master: master, program: program, size: size,
		workers: map[int]*member{}, known: map[int]bool{}, full: map[int]bool{}, fewer: map[int]bool{}}, nil
}

// look returns what has happened since the last look; false: the supervisord has ended.
func (f *family) look(now time.Time) ([]event, bool) {
	master, err := readProcess(f.master.pid)
	if err != nil || master.start != f.master.start || master.zombie {
		return nil, false
	}
	seen := map[int]bool{}
	var news []event
	for _, pid := range children(f.master.pid) {
		seen[pid] = true
		if e, ok := f.meet(pid, now); ok {
			news = append(news, e...)
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(f.workers)) {
		if !seen[pid] {
			news = append(news, f.part(f.workers[pid], now)...)
		}
	}
	return append(news, f.conclude(now)...), true
}

// meet takes a child into the family if it is a worker of the program that was not known.
func (f *family) meet(pid int, now time.Time) ([]event, bool) {
	if f.workers[pid] != nil {
		return nil, false
	}
	name, err := variable(pid, "SUPERVISORD_PROGRAM")
	if err != nil || name != f.program {
		return nil, false // not a worker, or not yet: between fork and exec it has no name
	}
	p, err := readProcess(pid)
	text, _ := variable(pid, "SUPERVISORD_GENERATION")
	generation, bad := strconv.Atoi(text)
	if err != nil || bad != nil || p.group != pid || p.session != f.master.session {
		return nil, false // what a worker left behind is handed to the master too, but it leads no group, or has a session of its own
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		pidfd = -1
	}
	f.workers[pid] = &member{p, generation, pidfd}
	var news []event
	if !f.known[generation] {
		f.known[generation] = true
		news = append(news, event{now, began, generation, 0, ""})
	}
	return append(news, event{now, ready, generation, pid, ""}), true
}

// part takes a worker that has ended out of the family.
func (f *family) part(m *member, now time.Time) []event {
	delete(f.workers, m.pid)
	f.fewer[m.generation] = true
	end := event{now, ended, m.generation, m.pid, ""}
	byKill, known := wasKilled(m.pidfd)
	if m.pidfd >= 0 {
		unix.Close(m.pidfd) //nolint:errcheck // nothing to lose
	}
	f.unknown = f.unknown || !known
	switch {
	case m.generation == f.serving && !f.newer(m.generation):
		return []event{{now, died, m.generation, m.pid, "it ended although nothing was to replace it"}}
	case byKill:
		return []event{{now, killed, m.generation, m.pid, ""}, end}
	}
	return []event{end}
}

// conclude tells which generations serve, have failed or are gone.
func (f *family) conclude(now time.Time) []event {
	var news []event
	count := map[int]int{}
	for _, m := range f.workers {
		count[m.generation]++
	}
	for _, g := range slices.Sorted(maps.Keys(f.known)) {
		if count[g] >= f.size && !f.full[g] {
			f.full[g] = true
			f.fewer = map[int]bool{}
		}
		switch {
		case g > f.serving && f.full[g] && (f.serving == 0 || f.fewer[f.serving] || count[f.serving] == 0):
			f.serving = g
			news = append(news, event{now, served, g, 0, ""})
		case g > f.serving && count[g] == 0:
			news = append(news, event{now, failed, g, 0, "its workers ended before they took over; supervisord's log says why"})
		}
	}
	for _, g := range slices.Sorted(maps.Keys(f.known)) {
		if count[g] == 0 && g != f.serving {
			delete(f.known, g)
			news = append(news, event{now, gone, g, 0, ""})
		}
	}
	return news
}

// newer reports whether a newer generation was seen.
func (f *family) newer(generation int) bool {
	for g := range f.known {
		if g > generation {
			return true
		}
	}
	return false
}

// close lets go of the workers.
func (f *family) close() {
	for _, m := range f.workers {
		if m.pidfd >= 0 {
			unix.Close(m.pidfd) //nolint:errcheck // nothing to lose
		}
	}
}

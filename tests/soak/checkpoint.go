package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// mayGrow is by how much the memory of supervisord may be larger than at the first checkpoint. mayVary is the same for
// an image that has lived through a storm, however often it has collected its garbage since: Go lets a small heap grow
// by 4 MiB until it collects, and keeps the pages that it had in use then.
const (
	mayGrow = 1024 // KiB
	mayVary = 4096
)

// collected is after which time supervisord, which rests, has collected its garbage and given back the pages: Go
// collects each two minutes where nothing else leads to it.
const collected = 3 * time.Minute

// mayThreads is how many threads supervisord may have: on a busy machine more of its calls wait at a time, and Go keeps
// every thread. ofThread is what the stacks of one take, in KiB, measured with 60.
const (
	mayThreads = 150
	ofThread   = 23
)

// census is what supervisord has when it is quiet.
type census struct {
	descriptors map[string]int // by kind, without the listening sockets, of which it keeps what it once needed
	memory      int64          // of its own, in KiB, without the stacks of its threads
	threads     int64
	processes   int
	files       map[string]int // in its runtime directory, by kind
	store       int            // descriptors in systemd's store, without the listening sockets
}

// checkpoint waits until everything is settled, and holds what supervisord has against the first checkpoint: as it is
// after the storm, and after an upgrade. The first shows what it has lost track of, and the second what it hands on.
func (s *soak) checkpoint(steady bool) {
	began := time.Now()
	for _, p := range s.programs {
		s.ask("abort", p.name) // a canary that was left
		s.ask("resume", p.name)
		v := good
		v.kind, v.keep = "reload at a checkpoint", ""
		if p.extra = false; p.canRoll {
			p.surge = 0
		}
		r, _ := s.release(p, v, "--drained")
		if !s.mustServe(p, v, r, true) {
			return
		}
	}
	after := s.census()
	for began := time.Now(); after != nil && steady && s.aged > 0 && after.memory-s.aged > mayVary &&
		time.Since(began) < collected; after = s.census() {
		s.journal.event("census taken again for its memory", "%d KiB", after.memory)
	}
	if after == nil {
		return
	}
	if !unreachable() {
		s.violated("the extra listener was removed, and %s accepts connections", extraAddress)
	}
	c := s.upgraded()
	for range 2 { // memory of the same work differs a little from image to image
		if c != nil && s.first != nil && c.memory-s.first.memory > mayGrow {
			s.journal.event("census taken again for its memory", "%d KiB", c.memory)
			c = s.upgraded()
		}
	}
	if c == nil {
		return
	}
	s.checks++
	fmt.Printf("checkpoint %d, after %v: %+v; before its upgrade %d KiB and %d threads\n", s.checks,
		time.Since(began).Round(time.Second), *c, after.memory, after.threads)
	if s.first == nil {
		s.first = c
	}
	s.compareCensus(after)
	s.compareCensus(c)
	s.growth = max(s.growth, c.memory-s.first.memory)
	if n := max(after.threads, c.threads); n > mayThreads {
		s.violated("supervisord has %d threads", n)
	}
	if grown := c.memory - s.first.memory; grown > mayGrow {
		s.violated("supervisord has %d KiB of memory more than at the first checkpoint", grown)
	}
	if steady {
		s.age(after.memory)
	}
}

// age compares the memory of an image that has lived through a whole storm with that of the first such image.
func (s *soak) age(memory int64) {
	if s.aged == 0 {
		s.aged = memory
	}
	s.growth = max(s.growth, memory-s.aged)
	if memory-s.aged > mayVary {
		s.violated("supervisord has %d KiB of memory after a storm that it lived through, and %d KiB after the first such "+
			"storm", memory, s.aged)
	}
}

// upgraded takes the census of an image whose past is always the same.
func (s *soak) upgraded() *census {
	s.upgrade(nil)
	for range 2 {
		s.ask("reload", "--drained", "--timeout", patience)
	}
	return s.census()
}

// census waits until everything is settled and at rest, and takes a census; nil: the soak is over.
func (s *soak) census() *census {
	st := s.settled()
	if st == nil {
		return nil
	}
	s.ledger.complete(st)
	s.quiet.Lock()
	defer s.quiet.Unlock()
	s.client.Close()            // the connection of the last look
	time.Sleep(4 * time.Second) // what the last request needed is closed, and Go has given back some memory
	c, err := take(st)
	if err != nil {
		s.violated("cannot take a census: %v", err)
		return nil
	}
	return c
}

func (s *soak) compareCensus(c *census) {
	f := s.first
	if !maps.Equal(c.descriptors, f.descriptors) || c.processes != f.processes || !maps.Equal(c.files, f.files) ||
		c.store != f.store {
		s.violated("supervisord has\n%+v, at the first checkpoint\n%+v", *c, *f)
	}
}

// settled waits until each program has one generation that serves, and nothing else: nor an orphan that finishes what
// it has in hand, which no status shows.
func (s *soak) settled() *supervisor.Status {
	ctx, cancel := context.WithTimeout(s.ctx, 90*time.Second)
	defer cancel()
	for {
		st, err := s.client.Status(ctx, "", false)
		if err == nil && calm(st) && len(processes()) <= 1+2*len(st.Programs) {
			s.look(st)
			return st
		}
		if !pause(ctx, 100*time.Millisecond) {
			if s.ctx.Err() == nil {
				text, _, _ := s.tool("status", "-v")
				s.violated("supervisord does not settle: %s", text)
			}
			return nil
		}
	}
}

func calm(st *supervisor.Status) bool {
	for _, p := range st.Programs {
		if p.State != program.Up || len(p.Generations) != 1 || p.Due != nil || len(p.Generations[0].Workers) != 2 {
			return false
		}
		for _, w := range p.Generations[0].Workers {
			if w.State != program.Ready {
				return false
			}
		}
	}
	return true
}

// take takes the census of a supervisord with this status.
func take(st *supervisor.Status) (*census, error) {
	c := &census{descriptors: map[string]int{}, files: map[string]int{}, processes: len(processes())}
	own := fmt.Sprintf("/proc/%d/", st.PID)
	fds, err := os.ReadDir(own + "fd")
	if err != nil {
		return nil, err
	}
	for _, fd := range fds {
		to, _ := os.Readlink(own + "fd/" + fd.Name())
		kind, _, _ := strings.Cut(strings.TrimPrefix(to, runtime+"/"), ":[")
		kind, _, _ = strings.Cut(kind, ".") // notify.3f2a1b00
		c.descriptors[kind]++
	}
	listening := 0
	for _, p := range st.Programs {
		for _, l := range p.Listeners {
			listening += len(l.FDs)
		}
	}
	c.descriptors["socket"] -= listening
	raw, err := os.ReadFile(own + "status")
	if err != nil {
		return nil, err
	}
	for name, into := range map[string]*int64{"RssAnon:": &c.memory, "Threads:": &c.threads} {
		_, after, _ := strings.Cut(string(raw), name)
		fmt.Sscan(after, into) //nolint:errcheck // 0 then
	}
	c.memory -= ofThread * c.threads
	err = filepath.WalkDir(runtime, func(_ string, entry os.DirEntry, err error) error {
		if err == nil {
			c.files[entry.Type().String()]++
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out, err := exec.Command("systemctl", "show", "-P", "NFileDescriptorStore", "supervisord").Output()
	if err == nil {
		c.store, err = strconv.Atoi(strings.TrimSpace(string(out)))
	}
	c.store -= listening
	return c, err
}

// processes lists the processes of the service.
func processes() []string {
	raw, _ := os.ReadFile("/sys/fs/cgroup/system.slice/supervisord.service/cgroup.procs")
	return strings.Fields(string(raw))
}

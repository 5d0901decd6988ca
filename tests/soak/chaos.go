package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// source is one kind of events, one after the other. Each source draws from a generator of its own, so that the
// schedule depends on nothing but the seed.
type source struct {
	name     string
	from, to time.Duration // the pause before each event
	ends     bool          // each ends this image of supervisord
	do       func(*rand.Rand)
	draw     *rand.Rand
}

// pause draws a pause: each order of magnitude is as likely as the next.
func (c *source) pause() time.Duration {
	low, high := math.Log(float64(c.from)), math.Log(float64(c.to))
	return time.Duration(math.Exp(low + c.draw.Float64()*(high-low)))
}

func (s *soak) newSources() (all []*source) {
	for _, p := range s.programs {
		all = append(all, &source{name: "reload " + p.name, from: 100 * time.Millisecond, to: 10 * time.Second,
			do: func(r *rand.Rand) { s.deploy(p, r) }})
	}
	all = append(all,
		&source{name: "hup", from: 2 * time.Second, to: 20 * time.Second, do: s.hangUp},
		&source{name: "kill", ends: true, from: 8 * time.Second, to: 12 * time.Second, do: s.killMaster},
		&source{name: "upgrade", ends: true, from: 25 * time.Second, to: 35 * time.Second, do: s.upgrade},
		&source{name: "kill worker", from: 5 * time.Second, to: 20 * time.Second, do: s.killWorker},
		&source{name: "stop worker", from: 3 * time.Second, to: 15 * time.Second, do: s.stopWorker},
		&source{name: "pause", from: 20 * time.Second, to: time.Minute, do: s.pauseProgram},
		&source{name: "full disk", from: 20 * time.Second, to: 90 * time.Second, do: s.fillDisk},
		&source{name: "descriptors", from: 20 * time.Second, to: 90 * time.Second, do: s.exhaust},
		&source{name: "hostile", from: 10 * time.Second, to: 30 * time.Second, do: s.hostile},
	)
	if s.o.setClock {
		all = append(all, &source{name: "clock", from: 30 * time.Second, to: 90 * time.Second, do: s.setClock})
	}
	out := strings.Split(s.o.without, ",")
	all = slices.DeleteFunc(all, func(c *source) bool { return slices.Contains(out, c.name) })
	for _, c := range all {
		name := fnv.New64a()
		fmt.Fprint(name, c.name)
		c.draw = rand.New(rand.NewPCG(s.o.seed, name.Sum64()))
	}
	return all
}

// storm lets events happen until ctx ends, and waits for those under way. A steady one leaves supervisord itself alive.
func (s *soak) storm(ctx context.Context, steady bool) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, c := range s.sources {
		if steady && c.ends {
			continue
		}
		all.Go(func() {
			for pause(ctx, c.pause()) {
				c.do(c.draw)
			}
		})
	}
}

// master returns the PID of supervisord, or 0.
func (s *soak) master() int {
	pid := s.last.Load().PID
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if strings.Contains(string(line), "\x00run\x00") {
		return pid
	}
	return 0
}

// hangUp sends HUP, some of them close together.
func (s *soak) hangUp(r *rand.Rand) {
	for range 1 + r.IntN(4) {
		if pid := s.master(); pid != 0 {
			s.journal.event("HUP", "%d", pid)
			unix.Kill(pid, unix.SIGHUP) //nolint:errcheck // it may have died
		}
		time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
	}
}

// killMaster kills supervisord. systemd starts the next one, which must answer in time.
func (s *soak) killMaster(*rand.Rand) {
	s.deaths.during(func() {
		old := s.master()
		if old == 0 {
			return
		}
		s.journal.event("kill -9 of supervisord", "%d", old)
		unix.Kill(old, unix.SIGKILL) //nolint:errcheck // it may have died
		began := time.Now()
		for s.master() == old || s.master() == 0 {
			if time.Since(began) > silence {
				s.violated("%v after the death of supervisord %d none runs", silence, old)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		s.journal.line("supervisord %d answers, %v after the death", s.master(), time.Since(began).Round(time.Millisecond))
	})
}

// upgrade replaces supervisord in place. That must work unless soak kills supervisord meanwhile, or takes away what it
// needs, or has written a configuration that the new image cannot read.
func (s *soak) upgrade(*rand.Rand) {
	s.limits.Lock() // the new image would take the lowered limit for its own
	defer s.limits.Unlock()
	died, scarce, broken := s.deaths.mark(), s.scarce.mark(), s.broken.mark()
	s.journal.event("upgrade in place", "")
	var said string
	var code int
	s.upgrades.during(func() { _, said, code = s.tool("upgrade") })
	if code != 0 {
		s.journal.event("upgrade refused", "%s", said)
	}
	if code != 0 && !died() && !scarce() && !broken() && !s.over() {
		s.violated("upgrade: exit status %d: %s", code, said)
	}
}

// worker draws a worker of a program that soak may disturb.
func (s *soak) worker(r *rand.Rand, fits func(supervisor.GenerationStatus, supervisor.WorkerStatus) bool) (p *deployed,
	pid int) {
	p = s.programs[r.IntN(len(s.programs))]
	n := r.Int()
	var found []int
	for _, g := range s.last.Load().Program(p.name).Generations {
		for _, w := range g.Workers {
			if w.PID != 0 && fits(g, w) {
				found = append(found, w.PID)
			}
		}
	}
	if len(found) == 0 {
		return p, 0
	}
	return p, found[n%len(found)]
}

func serves(g supervisor.GenerationStatus, w supervisor.WorkerStatus) bool {
	return g.Role == program.RoleServing && w.State == program.Ready
}

// isWorker reports whether a process is a worker in one of these states: "T", stopped; "RSD", running.
func isWorker(pid int, states string) bool {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, found := strings.Cut(string(raw), " (worker) ")
	return found && rest != "" && strings.ContainsRune(states, rune(rest[0]))
}

// killWorker kills a worker of a generation that serves.
func (s *soak) killWorker(r *rand.Rand) {
	p, pid := s.worker(r, serves)
	if pid == 0 {
		return
	}
	p.touched.during(func() {
		err := s.load.Kill(pid, func() error { return s.kill(p, pid) })
		if err != nil {
			s.journal.event("worker spared", "%d of %s: %v", pid, p.name, err)
			return
		}
		s.journal.event("kill -9 of a worker", "%d of %s", pid, p.name)
	})
}

// kill stops a worker and kills it, unless it does not serve any more, or no other one does: then nothing would.
func (s *soak) kill(p *deployed, pid int) error {
	if !isWorker(pid, "RSD") {
		return fmt.Errorf("it has ended")
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	for !isWorker(pid, "T") {
		if !isWorker(pid, "RSDT") {
			return fmt.Errorf("it has ended")
		}
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	st, err := s.client.Status(ctx, p.name, false)
	if err != nil || !slices.ContainsFunc(st.Programs[0].Generations, func(g supervisor.GenerationStatus) bool {
		serving := slices.DeleteFunc(g.Workers, func(w supervisor.WorkerStatus) bool { return !serves(g, w) })
		return len(serving) > 1 && slices.ContainsFunc(serving, func(w supervisor.WorkerStatus) bool { return w.PID == pid })
	}) {
		unix.Kill(pid, unix.SIGCONT) //nolint:errcheck // it is stopped
		return fmt.Errorf("it does not serve, or serves alone: %w", err)
	}
	return unix.Kill(pid, unix.SIGKILL)
}

// stopWorker stops any worker for a while.
func (s *soak) stopWorker(r *rand.Rand) {
	p, pid := s.worker(r, func(supervisor.GenerationStatus, supervisor.WorkerStatus) bool { return true })
	length := 100*time.Millisecond + time.Duration(r.IntN(2900))*time.Millisecond
	if pid == 0 || !isWorker(pid, "RSD") {
		return
	}
	p.touched.during(func() {
		s.journal.event("SIGSTOP of a worker", "%d of %s for %v", pid, p.name, length)
		unix.Kill(pid, unix.SIGSTOP) //nolint:errcheck // it may have ended
		time.Sleep(length)
		unix.Kill(pid, unix.SIGCONT) //nolint:errcheck // it may have ended
	})
}

// pauseProgram lets new connections wait.
func (s *soak) pauseProgram(r *rand.Rand) {
	p := s.programs[r.IntN(2)]
	length, resumes := 500+r.IntN(1500), r.IntN(2) == 0
	answer := s.ask("pause", p.name, "--for", strconv.Itoa(length)+"ms")
	s.journal.event("pause", "%s for %d ms: %s", p.name, length, answer.Outcome)
	if resumes {
		time.Sleep(time.Duration(length/2) * time.Millisecond)
		s.ask("resume", p.name)
	}
}

// fillDisk fills the disks of the runtime and the log directory for a while, blocks and inodes.
func (s *soak) fillDisk(r *rand.Rand) {
	length := 500*time.Millisecond + time.Duration(r.IntN(3500))*time.Millisecond
	s.scarce.during(func() {
		s.journal.event("full disk", "for %v", length)
		var filled []string
		for _, dir := range []string{runtime, logs} {
			for n := 0; ; n++ {
				path := filepath.Join(dir, fmt.Sprintf("fill.%d", n))
				err := os.WriteFile(path, make([]byte, 64<<10), 0o600)
				filled = append(filled, path)
				if _, none := os.Stat(path); err != nil && none != nil {
					break // not even an inode
				}
			}
		}
		time.Sleep(length)
		for _, path := range filled {
			os.Remove(path) //nolint:errcheck // the last one of each was not made
		}
	})
}

// exhaust leaves supervisord few descriptors for a while.
func (s *soak) exhaust(r *rand.Rand) {
	s.limits.Lock()
	defer s.limits.Unlock()
	spare, length := r.IntN(12), 500*time.Millisecond+time.Duration(r.IntN(2500))*time.Millisecond
	pid := s.master()
	var was unix.Rlimit
	if pid == 0 || unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was) != nil {
		return
	}
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	s.scarce.during(func() {
		low := was
		low.Cur = uint64(len(fds) + spare)
		s.journal.event("descriptors exhausted", "%d for %v: %v", low.Cur, length,
			unix.Prlimit(pid, unix.RLIMIT_NOFILE, &low, nil))
		time.Sleep(length)
		unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil) //nolint:errcheck // it may have died
	})
}

// hostile lets an ordinary user attack the control socket.
func (s *soak) hostile(r *rand.Rand) {
	seed, length := r.Uint64(), time.Second+time.Duration(r.IntN(4000))*time.Millisecond
	s.journal.event("hostile clients", "for %v", length)
	command := exec.Command(driver, roleHostile, "-seed", strconv.FormatUint(seed, 10), "-for", length.String())
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := command.CombinedOutput(); err != nil {
		s.violated("the hostile clients: %v: %s", err, out)
	}
}

const nobody = 65534

// setClock sets the clock back or forth for a while. The clock then continues as if nothing had been.
func (s *soak) setClock(r *rand.Rand) {
	by := time.Duration(1+r.IntN(120)) * time.Second
	if r.IntN(2) == 0 {
		by = -by
	}
	length := 500*time.Millisecond + time.Duration(r.IntN(2500))*time.Millisecond
	began := time.Now() // has the monotonic clock, too
	set := func(t time.Time) error {
		ts := unix.NsecToTimespec(t.UnixNano())
		return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
	}
	s.journal.event("clock set", "by %v for %v: %v", by, length, set(began.Add(by)))
	time.Sleep(length)
	if err := set(began.Add(time.Since(began))); err != nil {
		s.violated("cannot set the clock back to what it was: %v", err)
	}
}

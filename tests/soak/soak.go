package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/tests/soak/traffic"
)

// soak is one run, inside the lab.
type soak struct {
	o        *flags
	journal  *journal
	ledger   *outcomes
	client   *control.Client
	load     *traffic.Generator
	programs []*deployed
	sources  []*source

	last  atomic.Pointer[supervisor.Status]
	poke  chan struct{} // look at the status now
	quiet sync.RWMutex  // held by a checkpoint that wants nobody to ask supervisord

	spells
	limits sync.Mutex
	losses losses
	checkpoints

	ctx  context.Context // ends with the first violation, or when the soak is told to end
	fail context.CancelCauseFunc
}

// spells are the times in which something does not work that otherwise has to.
type spells struct {
	deaths, upgrades spell // of supervisord
	scarce           spell // no disk space, or no descriptors
	broken           spell // a configuration cannot be read
}

// losses are the requests that were lost without an excuse.
type losses struct {
	mu  sync.Mutex
	all []traffic.Violation
}

// checkpoints is what the checkpoints have found so far.
type checkpoints struct {
	first  *census // of the first checkpoint
	aged   int64   // memory of the first image that lived through a storm, in KiB
	growth int64   // the largest, of memory in KiB
	checks int
}

// errToldToEnd is the cause of an end before its time.
var errToldToEnd = errors.New("told to end")

// inside runs the soak in the lab. It prints everything on stdout. Errors: errBroken.
func inside(o *flags) error {
	signal.Ignore(syscall.SIGINT) // the end of the standard input says when to end
	s := &soak{o: o, journal: newJournal(), programs: newPrograms(o.seed), poke: make(chan struct{}, 1)}
	s.ctx, s.fail = context.WithCancelCause(context.Background())
	s.ledger = newLedger(s.violated)
	s.client = control.NewClient(filepath.Join(runtime, "control.sock"))
	s.sources = s.newSources()
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // only its end matters
		s.fail(errToldToEnd)
	}()
	fmt.Printf("soak: seed %d, for %v\n", o.seed, o.length)
	if err := s.prepare(); err != nil {
		return err
	}
	watching, end := context.WithCancel(context.Background())
	var watchers sync.WaitGroup
	for _, w := range []func(context.Context){s.watch, s.follow, s.progress} {
		watchers.Go(func() { w(watching) })
	}
	s.run()
	end()
	watchers.Wait()
	return s.report()
}

// violated ends the soak: a promise was broken.
func (s *soak) violated(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.journal.line("VIOLATION: %s", text)
	s.fail(errors.New(text))
}

// lost ends the soak because of a request.
func (s *soak) lost(v traffic.Violation) {
	s.losses.mu.Lock()
	s.losses.all = append(s.losses.all, v)
	s.losses.mu.Unlock()
	s.violated("%v", v)
}

// over reports whether the soak has been told to end, or a promise was broken: what fails now fails for that reason.
func (s *soak) over() bool { return s.ctx.Err() != nil }

// prepare starts supervisord with the three programs and the load on them.
func (s *soak) prepare() error {
	for _, dir := range []string{accounts, runtime, logs, filepath.Join(settings, "conf.d")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for dir, size := range map[string]string{runtime: "size=1m,nr_inodes=256,mode=0755",
		logs: "size=12m,nr_inodes=256,mode=0755"} {
		if err := unix.Mount("soak", dir, "tmpfs", 0, size); err != nil {
			return fmt.Errorf("cannot mount a small disk at %s: %w", dir, err)
		}
	}
	top := "[supervisor]\ninclude = [\"conf.d/*.toml\"]\ncontrol_read = \"any\"\n"
	if err := os.WriteFile(filepath.Join(settings, "config.toml"), []byte(top), 0o644); err != nil {
		return err
	}
	for _, p := range s.programs {
		if err := p.write(good); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"daemon-reload"}, {"start", "supervisord"}} {
		if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("systemctl %q: %w\n%s%s", args, err, out, logged("-n", "50", "-u", "supervisord"))
		}
	}
	st, err := s.client.Status(s.ctx, "", false)
	if err != nil {
		return err
	}
	s.last.Store(st)
	s.load, err = traffic.Start(traffic.Scope{
		Naive: naiveAddress, Polite: politeAddress, UDP: udpAddress, Accounts: accounts, Rate: s.o.rate, Seed: s.o.seed,
		Violation: s.lost,
	})
	return err
}

// firstRound is how long the first storm is at most: when everything has happened a little, the first checkpoint comes.
const firstRound = 90 * time.Second

// run lets storms and checkpoints alternate until the time is over. One and the same supervisord lives through each
// fourth storm: what it loses track of must not end with it.
func (s *soak) run() {
	length := min(firstRound, s.o.length/3)
	for n := 0; s.ctx.Err() == nil; n++ {
		steady := n%4 == 2
		round, end := context.WithTimeout(s.ctx, length)
		s.storm(round, steady)
		end()
		if s.ctx.Err() == nil {
			s.checkpoint(steady)
		}
		left := s.o.length - time.Since(s.journal.began)
		if left <= 0 {
			return
		}
		length = min(s.o.round, left)
	}
}

// progress prints a line now and then.
func (s *soak) progress(ctx context.Context) {
	every := min(30*time.Second, max(5*time.Second, s.o.length/20))
	for pause(ctx, every) {
		reloads, answers := s.ledger.counts()
		fmt.Printf("%8v  %v; %d reloads, %d answers compared; supervisord killed %d times, upgraded %d times\n",
			time.Since(s.journal.began).Round(time.Second), s.load.Counts(), reloads, answers,
			s.journal.count("kill -9 of supervisord"), s.journal.count("upgrade in place"))
	}
}

// report ends the load and supervisord, and prints how it went.
func (s *soak) report() error {
	settling, end := context.WithTimeout(context.Background(), 2*time.Minute)
	defer end()
	explained := s.explain()
	if explained {
		settling, end = context.WithTimeout(context.Background(), 0)
		defer end()
	}
	counts, err := s.load.Settle(settling)
	if err != nil && !s.over() {
		s.violated("the load does not settle: %v", err)
	}
	if s.cause() == nil {
		s.stop()
	}
	if !explained {
		s.explain()
	}
	s.explainLosses()
	s.table(counts)
	if broken := s.cause(); broken != nil {
		return fmt.Errorf("%w: %w", errBroken, broken) // once more, last: who reads the end of a log sees it
	}
	fmt.Println("soak: no promise was broken")
	return nil
}

// cause returns the promise that was broken, or nil.
func (s *soak) cause() error {
	if cause := context.Cause(s.ctx); !errors.Is(cause, errToldToEnd) {
		return cause
	}
	return nil
}

// around is how much of what happened before and after a lost request is printed once more.
const around = 2 * time.Second

// explain prints what is known of a violation, and reports whether there was one.
func (s *soak) explain() bool {
	broken := s.cause()
	if broken == nil {
		return false
	}
	fmt.Printf("\nsoak: VIOLATION, seed %d, after %v: %v\n\nthe last events:\n", s.o.seed,
		time.Since(s.journal.began).Round(time.Millisecond), broken)
	s.journal.show(os.Stdout, 0, math.MaxInt64)
	fmt.Printf("\nthe end of the journal:\n%s\n", logged("-n", fmt.Sprint(kept)))
	_, said, _ := s.tool("log-level", "info")
	status, _, _ := s.tool("status", "-v")
	fmt.Printf("the status now: %s\n%s\n", said, status)
	datagrams, _ := os.ReadFile("/proc/thread-self/net/udp")
	fmt.Printf("datagrams that wait, as rx_queue:\n%s\n", datagrams)
	return true
}

// explainLosses prints every request that was lost, and what happened when it was sent.
func (s *soak) explainLosses() {
	s.losses.mu.Lock()
	defer s.losses.mu.Unlock()
	shown := time.Duration(-around)
	for _, v := range s.losses.all {
		sent, is := v.Sent()
		at := sent.Sub(s.journal.began)
		fmt.Printf("soak: LOST: %v\n", v)
		if is {
			fmt.Printf("it was sent after %v, at %v\n", at, sent.Format(time.StampMicro))
		}
		if is && at-shown > around {
			shown = at
			s.explainInstant(at, sent)
		}
	}
}

// explainInstant prints the events and the journal about the time when a request was sent.
func (s *soak) explainInstant(at time.Duration, sent time.Time) {
	fmt.Println("the events then:")
	s.journal.show(os.Stdout, at-around, at+around)
	const stamp = "2006-01-02 15:04:05.000000"
	fmt.Printf("\nthe journal then:\n%s\n", logged("--since", sent.Add(-around).Format(stamp),
		"--until", sent.Add(around).Format(stamp)))
}

// logged returns a part of systemd's journal.
func logged(part ...string) []byte {
	show := exec.Command("journalctl", append([]string{"--no-pager", "-o", "short-precise"}, part...)...)
	out, _ := show.CombinedOutput() // what it printed is shown
	return out
}

// stop stops supervisord: nothing may be left.
func (s *soak) stop() {
	for _, args := range [][]string{{"stop", "supervisord"}, {"show", "-P", "Result", "supervisord"},
		{"show", "-P", "NFileDescriptorStore", "supervisord"}} {
		out, err := exec.Command("systemctl", args...).CombinedOutput()
		if err != nil {
			s.violated("systemctl %q: %v: %s", args, err, out)
		}
		if said := string(bytes.TrimSpace(out)); said != "" && said != "success" && said != "0" {
			s.violated("after the stop, systemctl %q says %s", args, said)
		}
	}
	if left := processes(); len(left) > 0 {
		s.violated("after the stop these processes are left: %q", left)
	}
	if left, _ := os.ReadDir(runtime); len(left) > 0 {
		s.violated("after the stop these files are left in %s: %v", runtime, left)
	}
}

// table prints the result, in Markdown.
func (s *soak) table(c traffic.Counts) {
	fmt.Println("| requests | sent | answered | excused | lost |\n| --- | --- | --- | --- | --- |")
	row := func(name string, n traffic.Count) {
		fmt.Printf("| %s | %d | %d | %d | %d |\n", name, n.Requests, n.Answered, n.Excused, n.Lost)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Loads)) {
		row(name, c.Loads[name])
	}
	row("all", c.Count)
	fmt.Printf("\nexcused: %v; workers: %d\n\n", c.Excuses, c.Workers)
	s.journal.table(os.Stdout)
	reloads, answers := s.ledger.counts()
	fmt.Printf("| reloads with an outcome | %d |\n| answers compared with it | %d |\n| checkpoints | %d |\n"+
		"| growth of memory at most | %d KiB |\n",
		reloads, answers, s.checks, s.growth)
	fmt.Printf("\nsoak: seed %d, %v: %v; %d reloads, %d upgrades, %d deaths of supervisord\n", s.o.seed,
		time.Since(s.journal.began).Round(time.Second), c, reloads, s.journal.count("upgrade in place"),
		s.journal.count("kill -9 of supervisord"))
}

package prove

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/config"
)

// Options says what to prove, and how hard to try.
type Options struct {
	Config    *config.Config
	Command   []string      // starts supervisord with this configuration in the foreground
	PID       int           // of a supervisord that runs; 0: the one that holds the pid file, or else a child
	Program   string        // "": the only one with a listener
	URL       string        // a whole URL, or the path on the program's own listener, or ""
	Rate      int           // requests each second
	Reloads   int           // how many HUPs, spread over Duration; each waits until the one before is decided
	Duration  time.Duration // how long the load goes on; longer where the reloads need it
	Timeout   time.Duration // a request without an answer after this time is lost
	RoundTrip time.Duration // how far away the client acts to be: see the package
	Live      io.Writer     // a terminal for the line that tells how it goes; nil: none
}

// mostRequests bounds what is remembered, at some 24 bytes for each request.
const mostRequests = 20_000_000

// Run proves, and returns the verdict. An error means that nothing was proved: wrong options, or a program that does not run to
// begin with. When ctx ends the verdict is a partial one. Nothing is left behind: a supervisord that was started is stopped.
func Run(ctx context.Context, o Options) (*Verdict, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p, err := o.program()
	if err != nil {
		return nil, err
	}
	all, err := targets(p, o.URL)
	if err != nil {
		return nil, err
	}
	m, err := o.master(p)
	if err != nil {
		return nil, err
	}
	r := &proof{Options: o, program: p, master: m, history: newHistory(), patience: patience(p), live: live{out: o.Live}, adrift: map[int]string{}}
	err = r.run(ctx, all)
	if ended := m.end(r.forStop()); err == nil {
		err = ended
	}
	if err != nil {
		return nil, err
	}
	return r.verdict(), nil
}

// check refuses options that make no sense.
func (o Options) check() error {
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{o.Rate < 2, "--rate must be 2 or more requests each second: half of them come on new connections"},
		{o.Reloads < 1, "--reloads must be 1 or more: without a reload there is nothing to prove"},
		{o.Duration < time.Second, `--duration must be a second or more, such as "30s"`},
		{o.Timeout <= 0, `--timeout must be more than nothing, such as "10s"`},
		{o.RoundTrip < 0 || o.RoundTrip > time.Second, `--round-trip must be between 0 and "1s"`},
		{o.PID < 0, "--pid must be the number of a process"},
		{float64(o.Rate)*o.Duration.Seconds() > mostRequests, fmt.Sprintf("--rate times --duration is more than %d requests: choose less of one", mostRequests)},
	} {
		if c.bad {
			return errors.New(c.text)
		}
	}
	return nil
}

// program finds the one to prove.
func (o Options) program() (*config.Program, error) {
	var every, fit []string
	var found *config.Program
	for i := range o.Config.Programs {
		p := &o.Config.Programs[i]
		every = append(every, p.Name)
		if o.Program == p.Name || o.Program == "" && len(p.Listen) > 0 {
			fit, found = append(fit, p.Name), p
		}
	}
	there := "there are " + strings.Join(every, ", ")
	if len(every) == 0 {
		there = "it has no programs"
	}
	switch {
	case len(fit) == 1:
		return found, nil
	case len(fit) > 1:
		return nil, fmt.Errorf("several programs have listeners: choose one with --program: %s", strings.Join(fit, ", "))
	case o.Program != "":
		return nil, fmt.Errorf("there is no program %q in the configuration: %s", o.Program, there)
	}
	return nil, fmt.Errorf("no program in the configuration has a listener: name one with --program and its address with --url; %s", there)
}

// master is the supervisord that was named, or that holds the pid file, or a new child.
func (o Options) master(p *config.Program) (*master, error) {
	pid := o.PID
	if path := o.Config.Supervisor.PIDFile; pid == 0 && path != "" {
		var err error
		if pid, err = lockedPID(path); err != nil {
			return nil, err
		}
	}
	if pid != 0 {
		return attach(pid, p.Name, p.Workers)
	}
	return startChild(o, p.Name, p.Workers)
}

// patience is how long a reload may take until it is decided and everything old is gone.
func patience(p *config.Program) time.Duration {
	rounds := 1
	if p.Reload.Strategy == config.Rolling {
		rounds = p.Workers
	}
	wait := stopTime(p) // until one of max_draining generations has gone
	return wait + p.Reload.PreflightTimeout + time.Duration(rounds)*(p.Ready.Timeout+p.Reload.Soak) + stopTime(p) + 5*time.Second
}

// stopTime is how long the stop plan of a worker may take.
func stopTime(p *config.Program) time.Duration {
	var all time.Duration
	for _, s := range p.Stop.Steps {
		all += s.Wait
	}
	return all
}

// proof is one run. It belongs to the goroutine in run.
type proof struct {
	Options
	program  *config.Program
	master   *master
	target   *target
	history  *history
	patience time.Duration
	live     live

	load  *load
	began time.Time
	took  time.Duration // of the load
	tally tally

	adrift        map[int]string // orphans: start time by PID
	before, after map[string]int // descriptors of the master; nil: they cannot be seen
	interrupted   bool
	broken        string // why it ended early
}

func (r *proof) run(ctx context.Context, all []*target) error {
	if err := r.awaitServing(ctx); err != nil {
		return err
	}
	var err error
	if r.target, err = choose(ctx, all); err != nil {
		return err
	}
	r.before, _ = descriptors(r.master.pid) // nil where they may not be seen
	r.began = time.Now()
	r.load = newLoad(r.target, r.Options, r.began)
	r.loop(ctx)
	r.finish(ctx)
	r.live.clear()
	r.settleDescriptors()
	for _, p := range r.orphans() {
		r.adrift[p.pid] = p.start
	}
	return nil
}

// awaitServing waits until the program runs.
func (r *proof) awaitServing(ctx context.Context) error {
	late := time.NewTimer(r.patience)
	defer late.Stop()
	for r.history.serving == 0 {
		select {
		case e := <-r.master.events:
			if e.kind == failed {
				return fmt.Errorf("program %s does not start: %s", r.program.Name, e.reason)
			}
			r.history.add(e)
		case <-r.master.ended:
			return errors.New(r.master.why())
		case <-late.C:
			return fmt.Errorf("program %s does not serve after %s: see supervisord's log", r.program.Name, r.patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// beat is how often the live line is drawn and the end is looked for.
const beat = 100 * time.Millisecond

// loop reloads, and takes in what comes, until everything has been tried and has settled.
func (r *proof) loop(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	next := time.NewTimer(r.due(0))
	defer next.Stop()
	due := false // a reload, as soon as the one before is decided: each is to have a generation of its own
	for {
		select {
		case s := <-r.load.samples:
			r.tally.add(s)
		case e := <-r.master.events:
			r.history.add(e)
		case <-next.C:
			due = true
		case <-tick.C:
			r.live.show(r)
		case <-r.master.ended:
			r.broken = r.master.why()
		case <-ctx.Done():
			r.interrupted = true
		}
		if r.done() {
			return
		}
		if due && r.history.decided() {
			due = false
			r.reload()
			next.Reset(r.due(len(r.history.reloads)) - time.Since(r.began))
		}
	}
}

// due is when a reload is to be asked for: they are spread evenly, with as much load before the first as between two.
func (r *proof) due(number int) time.Duration {
	if number >= r.Reloads {
		return 1 << 62
	}
	return r.Duration * time.Duration(number+1) / time.Duration(r.Reloads+1)
}

func (r *proof) reload() {
	r.history.hup(time.Now())
	if err := r.master.hup(); err != nil {
		r.broken = err.Error()
	}
}

func (r *proof) done() bool {
	asked := len(r.history.reloads)
	switch {
	case r.interrupted || r.broken != "":
		return true
	case asked > 0 && time.Since(r.history.reloads[asked-1].at) > r.patience && !r.history.settled():
		return true
	}
	return asked == r.Reloads && r.history.settled() && time.Since(r.began) >= r.Duration
}

// finish ends the load. What is under way may end, unless the proof was given up.
func (r *proof) finish(ctx context.Context) {
	r.took = time.Since(r.began)
	given := ctx.Done()
	if r.interrupted || r.broken != "" {
		r.load.abandon()
		given = nil
	}
	r.load.stop()
	for {
		select {
		case s, open := <-r.load.samples:
			if !open {
				return
			}
			r.tally.add(s)
		case e := <-r.master.events:
			r.history.add(e)
		case <-given:
			r.interrupted, given = true, nil
			r.load.abandon()
		}
	}
}

// settleDescriptors counts the master's descriptors once more; what the last worker had is given a moment to be closed.
func (r *proof) settleDescriptors() {
	late := time.NewTimer(2 * time.Second)
	defer late.Stop()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		r.after, _ = descriptors(r.master.pid)
		if r.interrupted || r.broken != "" || total(r.after) <= total(r.before) {
			return
		}
		select {
		case e := <-r.master.events:
			r.history.add(e)
		case <-tick.C:
		case <-late.C:
			return
		}
	}
}

func total(count map[string]int) int {
	n := 0
	for _, c := range count {
		n += c
	}
	return n
}

// forStop is how long a child may take to stop before it is told to hurry.
func (r *proof) forStop() time.Duration {
	if r.interrupted || r.load == nil {
		return 2 * time.Second
	}
	return stopTime(r.program) + 5*time.Second
}

// orphans are the processes that workers of older generations started and that outlived them: they are handed to the master
// (PR_SET_CHILD_SUBREAPER), and tell by their environment where they come from.
func (r *proof) orphans() []process {
	var list []process
	for _, pid := range children(r.master.pid) {
		name, _ := variable(pid, "SUPERVISORD_PROGRAM")
		text, _ := variable(pid, "SUPERVISORD_GENERATION")
		generation, err := strconv.Atoi(text)
		_, worker := r.history.workers[pid]
		if p, gone := readProcess(pid); name == r.program.Name && err == nil && generation < r.history.serving && !worker && gone == nil && !p.zombie {
			list = append(list, p)
		}
	}
	return list
}

// leftBehind are the orphans, and, of a child that has ended, whatever is left of its workers' process groups. It is asked
// when the master has been let go.
func (r *proof) leftBehind() []string {
	left := []string{}
	for _, p := range processes() {
		_, group := r.history.workers[p.group]
		if r.adrift[p.pid] == p.start || group && r.master.child != nil && !p.zombie {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid))
			left = append(left, fmt.Sprintf("%s (PID %d)", strings.TrimSpace(string(name)), p.pid))
		}
	}
	return left
}

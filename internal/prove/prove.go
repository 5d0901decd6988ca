// Package prove finds out whether a deploy loses requests: it puts load on a program's own listener, reloads
// supervisord again and again, and reports what was lost, when and why.
//
// The parts, by file: a target receives the load (target.go), which package internal/lab/load sends; supervised.go
// starts supervisord or finds the one that runs; its control socket tells what becomes of each reload, and history.go
// keeps that. The Findings (findings.go) combine the requests and the history, with causes and remedies (causes.go), as
// text or a picture (text.go), or as JSON.
package prove

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/terminal"
)

// Plan says what to prove, and with what load.
type Plan struct {
	Config    *config.Config
	Command   []string        // starts supervisord with this configuration in the foreground
	Client    *control.Client // asks the supervisord of this configuration
	PID       int             // of a supervisord that runs; 0: the one that holds the pid file, or else a child
	Program   string          // "": the only one with a listener
	URL       string          // a whole URL, or the path on the program's own listener, or ""
	Rate      int             // requests each second
	Reloads   int             // how many reloads, spread over Duration; each waits until the one before is decided
	Duration  time.Duration   // how long the load lasts; longer if the reloads need it
	Timeout   time.Duration   // a request without an answer after this time is lost
	RoundTrip time.Duration   // the simulated distance of the client: see package load
	Announce  func(string)    // is told what the load will be and how long it takes, before it begins; nil: nobody is
	Live      *terminal.Lines // shows the progress; nil: nothing does
}

// mostRequests bounds what is remembered, at some 24 bytes for each request.
const mostRequests = 20_000_000

// Run runs the proof and returns its findings. An error means that nothing was proved: the options were wrong, or the
// program did not run in the first place. When ctx ends, the findings are partial. Nothing is left behind: a
// supervisord that was started is stopped.
func Run(ctx context.Context, o Plan) (*Findings, error) {
	p, err := o.program()
	if err != nil {
		return nil, err
	}
	all, err := targets(p, o.URL)
	if err != nil {
		return nil, err
	}
	s, err := find(ctx, o)
	if err != nil {
		return nil, err
	}
	r := &proof{Plan: o, program: p, supervisord: s, history: newHistory(p.Name), patience: patience(p)}
	err = r.run(ctx, all)
	s.end(r.forStop())
	if err != nil && r.history.startFailed() != "" {
		return nil, fmt.Errorf("%w%s", err, s.said())
	} else if err != nil {
		return nil, err
	}
	return r.findings(), nil
}

// Check refuses numbers that make no sense. Run expects others.
func (o Plan) Check() error {
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{o.Rate < 2, "--rate must be 2 or more requests each second: half of them come on new connections"},
		{o.Reloads < 1, "--reloads must be 1 or more: without a reload there is nothing to prove"},
		{o.Duration < time.Second, `--duration must be a second or more, such as "30s"`},
		{o.Timeout <= 0, `--timeout must be more than 0, such as "10s"`},
		{o.RoundTrip < 0 || o.RoundTrip > time.Second, `--round-trip must be between 0 and "1s"`},
		{o.PID < 0, "--pid must be the number of a process"},
		{float64(o.Rate)*o.Duration.Seconds() > mostRequests,
			fmt.Sprintf("--rate times --duration is more than %d requests: choose less of one", mostRequests)},
	} {
		if c.bad {
			return errors.New(c.text)
		}
	}
	if o.URL != "" && o.URL[0] != '/' {
		_, err := remote(o.URL)
		return err
	}
	return nil
}

// program finds the one to prove.
func (o Plan) program() (*config.Program, error) {
	var every, fit []string
	var found *config.Program
	for i := range o.Config.Programs {
		p := &o.Config.Programs[i]
		every = append(every, p.Name)
		if o.Program == p.Name || o.Program == "" && (len(p.Listen) > 0 || o.remote() && len(o.Config.Programs) == 1) {
			fit, found = append(fit, p.Name), p
		}
	}
	there := "it has " + strings.Join(every, ", ")
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
	case o.remote():
		return nil, fmt.Errorf("--url does not say which program of the configuration to reload: name one with --program; %s",
			there)
	}
	return nil, fmt.Errorf("no program in the configuration has a listener: give the address of one with --url; %s", there)
}

// remote reports whether the URL is a whole one.
func (o Plan) remote() bool { return o.URL != "" && o.URL[0] != '/' }

// patience is how long a reload may take until it is decided and everything old is gone, or kept.
func patience(p *config.Program) time.Duration {
	rounds := 1
	if p.Reload.Strategy == config.Rolling {
		rounds = p.Workers
	}
	wait := drainTime(p)            // until one of max_draining generations has gone
	return wait + p.Ready.Timeout + // of a preflight
		time.Duration(rounds)*(p.Ready.Timeout+p.Reload.Soak) + drainTime(p) +
		5*time.Second
}

// drainTime is how long an old worker may take until it is gone.
func drainTime(p *config.Program) time.Duration {
	return p.Drain.Timeout + p.Drain.Silence + p.Drain.Spread + stopTime(p)
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
	Plan
	program     *config.Program
	supervisord *supervised
	target      *endpoint
	history     *history
	seen        int // updates of the supervisord that are in history
	patience    time.Duration

	began time.Time
	took  time.Duration // of the load
	tally tally

	left        leftovers
	interrupted bool
	broken      string // why it ended early
}

func (r *proof) run(ctx context.Context, all []*endpoint) error {
	if err := r.awaitServing(ctx); err != nil {
		return err
	}
	var err error
	if r.target, err = choose(ctx, all); err != nil {
		return err
	}
	r.left.before = r.descriptors(ctx)
	if r.Announce != nil {
		r.Announce(r.announcement())
	}
	r.began = time.Now()
	attempts := make(chan load.Attempt, 1024)
	l := r.target.press(r.Plan, func(a load.Attempt) { attempts <- a })
	r.loop(ctx, attempts)
	r.finish(ctx, l, attempts)
	r.Live.Clear()
	r.look(ctx)
	return nil
}

// announcement says what will happen.
func (r *proof) announcement() string {
	return wrap(fmt.Sprintf("%s gets %d requests a second at %s and is reloaded %d times: about %s, or longer if its "+
		"workers take long to start and stop",
		r.program.Name, r.Rate, r.target, r.Reloads, r.Duration), "", "  ")
}

// catchUp takes in what the supervisord has told, and returns a channel that is closed when there is more.
func (r *proof) catchUp() <-chan struct{} {
	news, more := r.supervisord.events.Since(r.seen)
	for i := range news {
		r.history.add(&news[i])
	}
	r.seen += len(news)
	return more
}

// awaitServing waits until the program runs.
func (r *proof) awaitServing(ctx context.Context) error {
	late := time.NewTimer(r.patience)
	defer late.Stop()
	r.history.begin(r.supervisord.events.Status())
	for {
		more := r.catchUp()
		switch {
		case r.history.serving > 0:
			return nil
		case r.history.startFailed() != "":
			return fmt.Errorf("program %s does not start: %s", r.program.Name, r.history.startFailed())
		case r.supervisord.events.Err() != nil:
			return errors.New(r.supervisord.why())
		}
		select {
		case <-more:
		case <-late.C:
			return fmt.Errorf("program %s does not serve after %s: see supervisord's log", r.program.Name, r.patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// beat is how often the live line is drawn and the end is looked for.
const beat = 100 * time.Millisecond

// loop reloads, and takes in what comes, until everything has been tried and has settled.
func (r *proof) loop(ctx context.Context, attempts <-chan load.Attempt) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	next := time.NewTimer(r.due(0))
	defer next.Stop()
	due := false // a reload, as soon as the one before is decided: each is to have a generation of its own
	answers := make(chan reloaded, 1)
	more := r.catchUp()
	for !r.done() {
		select {
		case a := <-attempts:
			r.tally.add(a)
		case <-more:
			more = r.catchUp()
			if err := r.supervisord.events.Err(); err != nil {
				r.broken = r.supervisord.why()
			}
		case answer := <-answers:
			r.history.answer(answer)
		case <-next.C:
			due = true
		case <-tick.C:
			r.drawLine()
			r.broken = cmp.Or(r.broken, r.overload(time.Since(r.began)))
		case <-ctx.Done():
			r.interrupted = true
		}
		if due && r.history.idle() {
			due = false
			r.history.reloads = append(r.history.reloads, &asked{at: time.Now()})
			go func() { answers <- r.supervisord.reload(ctx, r.program.Name) }()
			next.Reset(r.due(len(r.history.reloads)) - time.Since(r.began))
		}
	}
}

// slackOfRate is how much longer than its timeout a request may take to be sent and to end. If many take longer, it is
// the machine that has no time for them.
const slackOfRate = 10 * time.Second

// overload says that the machine does not keep up with the load: ever more requests would only bring it to a halt.
// "": it keeps up.
func (r *proof) overload(took time.Duration) string {
	late := int((took-r.Timeout-slackOfRate).Seconds()*float64(r.Rate)) - len(r.tally.all)
	if late <= 0 {
		return ""
	}
	return fmt.Sprintf("this machine does not keep up with %d requests a second: %d have not ended after %s, though each "+
		"may take %s: lower --rate", r.Rate, late, r.Timeout+slackOfRate, r.Timeout)
}

// due is when a reload is to be asked for: they are spread evenly, with as much load before the first as between two.
func (r *proof) due(number int) time.Duration {
	if number >= r.Reloads {
		return 1 << 62
	}
	return r.Duration * time.Duration(number+1) / time.Duration(r.Reloads+1)
}

func (r *proof) done() bool {
	reloads := r.history.reloads
	if r.interrupted || r.broken != "" {
		return true
	}
	settled := r.history.allSettled()
	if n := len(reloads); n > 0 && !settled && time.Since(reloads[n-1].at) > r.patience {
		return true
	}
	return len(reloads) == r.Reloads && settled && time.Since(r.began) >= r.Duration
}

// finish ends the load. What is in flight may end, unless the proof was given up.
func (r *proof) finish(ctx context.Context, l *load.Load, attempts chan load.Attempt) {
	r.took = time.Since(r.began)
	given := ctx.Done()
	if r.interrupted || r.broken != "" {
		given = nil
		go l.Abandon()
	}
	go func() {
		l.Stop()
		close(attempts)
	}()
	for {
		select {
		case a, open := <-attempts:
			if !open {
				r.catchUp()
				return
			}
			r.tally.add(a)
		case <-given:
			r.interrupted, given = true, nil
			go l.Abandon()
		}
	}
}

// forStop is how long a child may take to stop before it is told to hurry.
func (r *proof) forStop() time.Duration {
	if r.interrupted || r.took == 0 {
		return 2 * time.Second
	}
	return stopTime(r.program) + 5*time.Second
}

// drawLine shows the progress.
func (r *proof) drawLine() {
	r.Live.Show(fmt.Sprintf("%.0fs  %d requests, %d lost; reload %d of %d%s",
		time.Since(r.began).Seconds(), len(r.tally.all), r.tally.lost, len(r.history.reloads), r.Reloads, r.state()))
}

// state says what is under way.
func (r *proof) state() string {
	n := len(r.history.reloads)
	if n == 0 {
		return ""
	}
	last := r.history.reloads[n-1]
	switch outcome, _, _ := r.history.outcome(last); {
	case outcome == undecided:
		return ": new workers start"
	case r.history.settled(last).IsZero():
		return ": old workers drain"
	case outcome == failed:
		return ": failed"
	}
	return ": done"
}

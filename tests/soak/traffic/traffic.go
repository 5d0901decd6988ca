package traffic

import (
	"context"
	"fmt"
	"sync"
	"time"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/tests/soak/account"
)

// Scope says what the load goes to.
type Scope struct {
	Naive, Polite, UDP string // addresses of the programs; "": no such load
	Accounts           string // the directory of the workers' accounts, which exists
	Rate               int    // requests a second, in total; 0: defaultRate. Slow answers make it less
	Seed               uint64
	Violation          func(Violation) // is called from one goroutine

	timeout time.Duration // 0: 30 s
}

// defaultRate is 10,000,000 requests in little more than an hour.
const defaultRate = 2500

// Generator is a load under way.
type Generator struct {
	c     Scope
	began time.Time
	load  *load.Load
	loops []*flow
	judge *judge
	mu    sync.Mutex
	gone  map[string]map[uint64]uint64 // program and generation: since when no new connection may reach it
}

// Start begins the load.
func Start(c Scope) (*Generator, error) {
	if c.Rate == 0 {
		c.Rate = defaultRate
	}
	if c.timeout == 0 {
		c.timeout = 30 * time.Second
	}
	t := &Generator{c: c, began: time.Now(), load: load.New(func(load.Attempt) {}), gone: map[string]map[uint64]uint64{}}
	judge, err := newJudge(c.Accounts, c.Violation)
	if err != nil {
		return nil, err
	}
	t.judge = judge
	t.start()
	return t, nil
}

// Count is a number of requests. Those that are neither answered nor excused nor lost are on the way, or not judged
// yet.
type Count struct{ Requests, Answered, Excused, Lost uint64 }

func (c *Count) add(o Count) {
	c.Requests += o.Requests
	c.Answered += o.Answered
	c.Excused += o.Excused
	c.Lost += o.Lost
}

// Counts are the requests so far.
type Counts struct {
	Count
	Loads   map[string]Count  // by program and kind of load: "polite/kept"
	Excuses map[string]uint64 // by what a killed worker had in hand: see the excuses
	Workers uint64            // how many workers kept an account
}

func (c Counts) String() string {
	return fmt.Sprintf("%d requests, %d answered, %d excused, %d lost", c.Requests, c.Answered, c.Excused, c.Lost)
}

// Counts returns the requests so far.
func (t *Generator) Counts() Counts {
	all := Counts{Loads: map[string]Count{}}
	for _, l := range t.loops {
		one := all.Loads[l.name()]
		one.add(Count{Requests: l.requests.Load(), Answered: l.answered.Load()})
		all.Loads[l.name()] = one
	}
	t.judge.count(&all)
	for _, one := range all.Loads {
		all.add(one)
	}
	return all
}

// Settle ends the load: nothing more is sent, what is on the way is waited for, every failure is judged, and the sums
// of the workers are held against those of the clients. A Violation may come meanwhile.
func (t *Generator) Settle(ctx context.Context) (Counts, error) {
	stopped := make(chan struct{})
	go func() { defer close(stopped); t.load.Stop() }()
	select {
	case <-stopped:
	case <-ctx.Done():
		t.load.Abandon()
		<-stopped
	}
	for _, l := range t.loops {
		l.close()
	}
	err := t.judge.settle(ctx, t.answered())
	return t.Counts(), err
}

func (t *Generator) answered() (n uint64) {
	for _, l := range t.loops {
		n += l.answered.Load()
	}
	return n
}

// Kill lets the caller kill a worker on purpose. kill returns nil only if its SIGKILL ended the worker, which must have
// been stopped by SIGSTOP before, so that nothing else did. What the worker's account then says that it had in hand is
// excused.
func (t *Generator) Kill(pid int, kill func() error) error { return t.judge.kill(pid, kill) }

// Withdrawn says that a generation does not serve any more: from now on no new connection may reach it.
func (t *Generator) Withdrawn(program string, generation int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone[program] == nil {
		t.gone[program] = map[uint64]uint64{}
	}
	if _, known := t.gone[program][uint64(generation)]; !known {
		t.gone[program][uint64(generation)] = account.Now()
	}
}

// withdrawn returns since when a generation may get no new connection; 0: it may.
func (t *Generator) withdrawn(program string, generation uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone[program][generation]
}

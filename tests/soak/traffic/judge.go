package traffic

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"example.org/supervisord/tests/soak/account"
)

// judge holds what clients lost against what the workers that were killed on purpose had in hand.
type judge struct {
	dir     string
	tell    func(Violation)
	stop    chan struct{}
	stopped sync.WaitGroup

	mu       sync.Mutex
	lives    map[string]*life // by the name of the account
	pending  []exchange       // not judged yet
	judged   map[string]Count // by load
	excuses  map[excuse]uint64
	workers  uint64
	answered uint64 // by workers that have ended
	unsaid   uint64 // requests that workers had in hand when they ended: they may have been answered
	full     uint64
}

// life is a worker, from its account. While it lives, its entries are in shared memory.
type life struct {
	program                string
	pid, generation, start uint64
	lossy                  bool
	seen                   *account.Seen // nil: it has ended
	left                   []*left       // what it had in hand at its end
	ended                  uint64        // when that was seen
	killing                bool
	killed                 bool   // on purpose
	from, to               uint64 // while it was killed
	spared                 bool   // the one connection that no account can have was excused
}

// left is a connection that a worker had when it ended.
type left struct {
	port, since, id, last uint64
	used                  bool // it has excused a request
}

// remembered is how long a worker that has ended is asked: a client learns of it within its timeout.
const remembered = 2 * time.Minute

// settling is how long a failure waits for its judgement: a process that ends closes one descriptor after the other.
const settling = 100 * time.Millisecond

func newJudge(dir string, tell func(Violation)) (*judge, error) {
	j := &judge{dir: dir, tell: tell, stop: make(chan struct{}), lives: map[string]*life{}, judged: map[string]Count{},
		excuses: map[excuse]uint64{}}
	if err := j.look(); err != nil {
		return nil, err
	}
	j.stopped.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				j.round()
			case <-j.stop:
				return
			}
		}
	})
	return j, nil
}

// round reads the accounts and judges what waits.
func (j *judge) round() {
	for _, v := range j.verdicts() {
		j.tell(v)
	}
}

func (j *judge) verdicts() (found []Violation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.look(); err != nil {
		return []Violation{{Why: "the accounts cannot be read: " + err.Error()}}
	}
	waiting := j.pending
	j.pending = nil
	for _, q := range waiting {
		if account.Now()-q.Ended < uint64(settling) {
			j.pending = append(j.pending, q)
			continue
		}
		why, excused, known := verdict(q, j.lives)
		count := j.judged[q.name()]
		switch {
		case !known:
			j.pending = append(j.pending, q)
			continue
		case excused != "":
			j.excuses[excused]++
			count.Excused++
		default:
			count.Lost++
			found = append(found, Violation{q, why})
		}
		j.judged[q.name()] = count
	}
	return found
}

func (j *judge) add(q exchange) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, q)
}

// look reads which workers there are, and what those that have ended left. j.mu is held, or nobody else has j.
func (j *judge) look() error {
	found, err := os.ReadDir(j.dir)
	if err != nil {
		return err
	}
	for _, one := range found {
		if name := one.Name(); j.lives[name] == nil && !strings.HasSuffix(name, ".new") {
			if err := j.open(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	for name, l := range j.lives {
		switch {
		case l.seen != nil && l.seen.Ended():
			if err := errors.Join(j.end(l), os.Remove(filepath.Join(j.dir, name))); err != nil {
				return err
			}
		case l.seen == nil && !l.killing && account.Now()-l.ended > uint64(remembered):
			delete(j.lives, name)
		}
	}
	return nil
}

func (j *judge) open(name string) error {
	seen, err := account.Open(filepath.Join(j.dir, name))
	if err != nil {
		return err
	}
	j.lives[name] = &life{
		program: seen.Program(), pid: seen.PID, generation: seen.Generation, start: seen.Started, lossy: seen.Lossy != 0,
		seen: seen,
	}
	j.workers++
	return nil
}

// end takes what a worker left.
func (j *judge) end(l *life) error {
	l.left = entries(l.seen.Sheet)
	for _, e := range l.left {
		if e.id != 0 {
			j.unsaid++
		}
	}
	j.answered += l.seen.Answered.Load()
	j.full += l.seen.Full.Load()
	l.ended = account.Now()
	err := l.seen.Close()
	l.seen = nil
	return err
}

func entries(p *account.Sheet) (all []*left) {
	for i := range p.Entries {
		e := &p.Entries[i]
		if port := e.Port.Load(); port != 0 {
			all = append(all, &left{port: port, since: e.Since.Load(), id: e.ID.Load(), last: e.Last.Load()})
		}
	}
	return all
}

// kill notes that a worker is killed on purpose.
func (j *judge) kill(pid int, kill func() error) error {
	l, err := j.victim(pid)
	if err != nil {
		return err
	}
	err = kill()
	j.mu.Lock()
	defer j.mu.Unlock()
	l.killing, l.killed, l.to = false, err == nil, account.Now()
	return err
}

func (j *judge) victim(pid int) (*life, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.look(); err != nil {
		return nil, err
	}
	for _, l := range j.lives {
		if l.seen != nil && l.pid == uint64(pid) && !l.killed && !l.killing {
			l.killing, l.from = true, account.Now()
			return l, nil
		}
	}
	return nil, fmt.Errorf("no worker with PID %d has an account", pid)
}

func (j *judge) count(all *Counts) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for name, one := range j.judged {
		sum := all.Loads[name]
		sum.add(one)
		all.Loads[name] = sum
	}
	all.Excuses, all.Workers = map[string]uint64{}, j.workers
	for what, n := range j.excuses {
		all.Excuses[string(what)] = n
	}
}

// settle waits until every failure is judged, and compares the sums.
func (j *judge) settle(ctx context.Context, clients uint64) error {
	close(j.stop)
	j.stopped.Wait()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		j.round()
		if left := j.waiting(); left == 0 {
			tick.Stop()
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("%d requests are neither answered nor judged: %w", j.waiting(), context.Cause(ctx))
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.sums(clients), j.close())
}

// waiting counts the requests that wait for their judgement, and those that workers have yet to note as answered.
func (j *judge) waiting() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := len(j.pending)
	for _, l := range j.lives {
		if l.seen == nil {
			continue
		}
		for _, e := range entries(l.seen.Sheet) {
			if e.id != 0 {
				n++
			}
		}
	}
	return n
}

// sums compares what the workers say that they have answered with what came to the clients. They differ by what died
// between an answer and its way to the client or into the account.
func (j *judge) sums(clients uint64) error {
	workers, full := j.answered, j.full
	for _, l := range j.lives {
		if l.seen != nil {
			workers += l.seen.Answered.Load()
			full += l.seen.Full.Load()
		}
	}
	lower := workers - j.excuses[answered]
	upper := lower + j.unsaid - j.excuses[answering]
	if full > 0 {
		return fmt.Errorf("the accounts had no room for %d connections", full)
	}
	if clients < lower || clients > upper {
		return fmt.Errorf("the clients got %d answers, the workers gave %d: %d to %d should have come", clients, workers,
			lower, upper)
	}
	return nil
}

func (j *judge) close() (err error) {
	for _, l := range j.lives {
		if l.seen != nil {
			err = errors.Join(err, l.seen.Close())
			l.seen = nil
		}
	}
	return err
}

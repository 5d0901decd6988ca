package process

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"sync"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// Journal is what happens to the programs of one supervisord from Follow on, as its control socket tells. It continues over an
// upgrade of supervisord. Its methods are safe for concurrent use.
type Journal struct {
	client *control.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	first *control.Status // nil: nobody has answered yet
	all   []supervisor.Update
	more  chan struct{} // closed at the next change
	gaps  int
	err   error // why it has ended
}

// Follow begins to follow the supervisord that c asks, and waits until it answers. The caller closes the Journal.
func Follow(ctx context.Context, c *control.Client) (*Journal, error) {
	following, cancel := context.WithCancel(context.Background())
	j := &Journal{client: c, cancel: cancel, done: make(chan struct{}), more: make(chan struct{})}
	go j.follow(following)
	for {
		_, more := j.Since(0)
		if j.Status() != nil {
			return j, nil
		}
		if err := j.Err(); err != nil {
			j.Close()
			return nil, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			j.Close()
			return nil, context.Cause(ctx)
		}
	}
}

// retryPause is how long the Journal waits before it asks again: no event tells that another process listens.
const retryPause = 20 * time.Millisecond

// follow reads the events until ctx ends or supervisord does.
func (j *Journal) follow(ctx context.Context) {
	defer close(j.done)
	begun := &httptrace.ClientTrace{GotFirstResponseByte: func() { j.catchUp(ctx) }}
	for j.Err() == nil {
		err := j.client.Events(httptrace.WithClientTrace(ctx, begun), "", func(u supervisor.Update) { j.add(u) })
		problem, refused := errors.AsType[*control.Problem](err)
		switch known := j.Status() != nil; {
		case ctx.Err() != nil:
			return
		case errors.Is(err, control.ErrNotThere) && known:
			j.end(errors.New("supervisord has ended"))
		case errors.Is(err, control.ErrForbidden), errors.Is(err, control.ErrStranger), refused && problem.Code != control.Stopping:
			j.end(err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return
		}
	}
}

// catchUp adds what the status knows, once the events arrive: nothing between the two is missed.
func (j *Journal) catchUp(ctx context.Context) {
	st, err := j.client.Status(ctx, "", false)
	if err != nil {
		return // the stream of events has the same problem, and follow handles it
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.first == nil {
		j.first = st
	} else {
		j.gaps++
	}
	if st.PID != j.first.PID {
		j.err = fmt.Errorf("supervisord (PID %d) has ended, and another one (PID %d) answers", j.first.PID, st.PID)
	}
	for _, p := range st.Programs {
		for i := range p.Reloads {
			j.all = append(j.all, supervisor.Update{Time: time.Now(), Program: p.Name, Report: program.Report{Reload: &p.Reloads[i]}})
		}
	}
	j.changed()
}

func (j *Journal) add(u supervisor.Update) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, u)
	j.changed()
}

func (j *Journal) end(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.err = err
	j.changed()
}

// changed wakes everybody who waits. j.mu is held.
func (j *Journal) changed() {
	close(j.more)
	j.more = make(chan struct{})
}

// Close ends the Journal; supervisord is not asked any more.
func (j *Journal) Close() {
	j.cancel()
	<-j.done
}

// Status is how things were when the Journal began. It must not be changed.
func (j *Journal) Status() *control.Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.first
}

// Err says why the Journal has ended; nil: it has not.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Gaps counts how often the connection broke, as an upgrade of supervisord breaks it: updates may be missing then, but no
// ReloadRecord that supervisord still remembers.
func (j *Journal) Gaps() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.gaps
}

// Since returns the updates from number n on, and a channel that is closed at the next change. An update without a Kind only
// carries a ReloadRecord from a status.
func (j *Journal) Since(n int) ([]supervisor.Update, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all[n:len(j.all):len(j.all)], j.more
}

// Len returns the number of updates so far.
func (j *Journal) Len() int {
	all, _ := j.Since(0)
	return len(all)
}

// Count counts the updates of a kind so far.
func (j *Journal) Count(kind program.ReportKind) int {
	all, _ := j.Since(0)
	n := 0
	for i := range all {
		if all[i].Kind == kind {
			n++
		}
	}
	return n
}

// Await waits for the first update from number n on for which is returns true.
func (j *Journal) Await(ctx context.Context, n int, is func(*supervisor.Update) bool) (*supervisor.Update, error) {
	for {
		err := j.Err()
		news, more := j.Since(n)
		for i := range news {
			if is(&news[i]) {
				return &news[i], nil
			}
		}
		if err != nil {
			return nil, err
		}
		n += len(news)
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

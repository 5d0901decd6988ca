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

// Follower knows what happens to the programs of one supervisord from Follow on, as its control socket tells. It
// continues over an upgrade of supervisord. Its methods are safe for concurrent use.
type Follower struct {
	client *control.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	first *supervisor.Status // nil: no answer yet
	all   []supervisor.Update
	more  chan struct{} // closed at the next change
	gaps  int
	err   error // why it has ended
}

// Follow begins to follow the supervisord that c asks, and waits until it answers. The caller closes the Follower.
func Follow(ctx context.Context, c *control.Client) (*Follower, error) {
	following, cancel := context.WithCancel(context.Background())
	f := &Follower{client: c, cancel: cancel, done: make(chan struct{}), more: make(chan struct{})}
	go f.follow(following)
	for {
		_, more := f.Since(0)
		if f.Status() != nil {
			return f, nil
		}
		if err := f.Err(); err != nil {
			f.Close()
			return nil, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		}
	}
}

// retryPause is how long the Follower waits before it asks again: no event tells that another process listens.
const retryPause = 20 * time.Millisecond

// follow reads the events until ctx ends or supervisord does.
func (f *Follower) follow(ctx context.Context) {
	defer close(f.done)
	begun := &httptrace.ClientTrace{GotFirstResponseByte: func() { f.catchUp(ctx) }}
	for f.Err() == nil {
		known := f.Status() != nil // before the answer: if another supervisord refuses, the status may be the next one's
		err := f.client.Events(httptrace.WithClientTrace(ctx, begun), "", f.add)
		if err := f.final(err, known); err != nil {
			f.end(err)
		}
		f.client.Close() // somebody else may answer next time
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return
		}
	}
}

// final returns why there will be no more events; nil: the supervisord that is followed may answer yet. known: it has
// answered before.
func (f *Follower) final(err error, known bool) error {
	problem, refused := errors.AsType[*control.APIError](err)
	other := refused && problem.Code == control.OtherConfig
	switch {
	case (other || errors.Is(err, control.ErrNotThere)) && known:
		return errors.New("supervisord has ended")
	case errors.Is(err, control.ErrForbidden), errors.Is(err, control.ErrStranger), refused && !other &&
		problem.Code != control.Stopping:
		return err
	}
	return nil
}

// catchUp adds what the status knows, once the events arrive: nothing between the two is missed.
func (f *Follower) catchUp(ctx context.Context) {
	st, err := f.client.Status(ctx, "", false)
	if err != nil {
		return // the stream of events has the same problem, and follow handles it
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == nil {
		f.first = st
	} else {
		f.gaps++
	}
	if st.PID != f.first.PID {
		f.err = fmt.Errorf("supervisord (PID %d) has ended, and another one (PID %d) answers", f.first.PID, st.PID)
	}
	for _, p := range st.Programs {
		for i := range p.Reloads {
			f.all = append(f.all, supervisor.Update{Time: time.Now(), Program: p.Name,
				Report: program.Report{Reload: &p.Reloads[i]}})
		}
	}
	f.changed()
}

func (f *Follower) add(u supervisor.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, u)
	f.changed()
}

func (f *Follower) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.changed()
}

// changed wakes everybody who waits. f.mu is held.
func (f *Follower) changed() {
	close(f.more)
	f.more = make(chan struct{})
}

// Close ends the Follower; supervisord is not asked any more.
func (f *Follower) Close() {
	f.cancel()
	<-f.done
}

// Status is how things were when the Follower began. It must not be changed.
func (f *Follower) Status() *supervisor.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first
}

// Err says why the Follower has ended; nil: it has not.
func (f *Follower) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Gaps counts how often the connection broke, as an upgrade of supervisord breaks it: updates may be missing then, but
// no ReloadRecord that supervisord still remembers.
func (f *Follower) Gaps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gaps
}

// Since returns the updates from number n on, and a channel that is closed at the next change. An update without a Kind
// only carries a ReloadRecord from a status.
func (f *Follower) Since(n int) ([]supervisor.Update, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[n:len(f.all):len(f.all)], f.more
}

// Len returns the number of updates so far.
func (f *Follower) Len() int {
	all, _ := f.Since(0)
	return len(all)
}

// Count counts the updates of a kind so far.
func (f *Follower) Count(kind program.ReportKind) int {
	all, _ := f.Since(0)
	n := 0
	for i := range all {
		if all[i].Kind == kind {
			n++
		}
	}
	return n
}

// Await waits for the first update from number n on for which is returns true.
func (f *Follower) Await(ctx context.Context, n int, is func(*supervisor.Update) bool) (*supervisor.Update, error) {
	for {
		err := f.Err()
		news, more := f.Since(n)
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

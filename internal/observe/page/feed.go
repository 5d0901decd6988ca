package page

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"example.org/supervisord/internal/clients"
)

// How often a stream is written to.
const (
	atMostEach = 250 * time.Millisecond
	atLeast    = 5 * time.Second // what workers use changes without an event, and a client that is gone must be noticed
)

// feed sends what the page shows to everyone who follows it.
type feed struct {
	make   func(context.Context) ([]byte, error) // what the page shows, in JSON
	ctx    context.Context                       // of everything that has no end of its own
	cancel context.CancelFunc

	sequence atomic.Uint64 // how often something has changed
	mu       sync.Mutex
	streams  map[chan struct{}]bool // each with room for one
	text     []byte                 // as it was made after textOf changes
	textOf   uint64
	textAt   time.Time
}

func (f *feed) open(make func(context.Context) ([]byte, error)) {
	f.make, f.streams = make, map[chan struct{}]bool{}
	f.ctx, f.cancel = context.WithCancel(context.Background())
}

func (f *feed) close() { f.cancel() }

// notify says that something has changed. It never waits.
func (f *feed) notify() {
	f.sequence.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	for changed := range f.streams {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

func (f *feed) enter() (changed chan struct{}, leave func()) {
	changed = make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[changed] = true
	return changed, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.streams, changed); len(f.streams) == 0 {
			f.text = nil
		}
	}
}

// ServeHTTP sends server-sent events, each of them all that the page shows: a client that misses one has lost nothing.
func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	clients.Lasts(r.Context())
	changed, leave := f.enter()
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	out.SetReadDeadline(time.Time{}) //nolint:errcheck // it is a socket; the client says nothing more
	alive := time.NewTicker(atLeast)
	defer alive.Stop()
	for {
		text, err := f.latest(r.Context())
		if err != nil {
			return
		}
		out.SetWriteDeadline(time.Now().Add(writeTimeout)) //nolint:errcheck // it is a socket
		message := bytes.Join([][]byte{[]byte("event: state\nretry: 2000\ndata: "), text, []byte("\n\n")}, nil)
		if _, err := w.Write(message); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-changed: // with what follows at once
			if !f.pause(r.Context(), atMostEach) {
				return
			}
		case <-alive.C:
		case <-r.Context().Done():
			return
		case <-f.ctx.Done():
			return
		}
	}
}

// pause returns false if the client is gone, or the site ends, before d is over.
func (f *feed) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-f.ctx.Done():
	}
	return false
}

// latest returns what the page shows. All who ask at the same moment get the same text.
func (f *feed) latest(ctx context.Context) ([]byte, error) {
	now := f.sequence.Load()
	f.mu.Lock()
	text, fresh := f.text, f.textOf == now && time.Since(f.textAt) < atMostEach
	f.mu.Unlock()
	if text != nil && fresh {
		return text, nil
	}
	text, err := f.make(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text, f.textOf, f.textAt = text, now, time.Now()
	return text, nil
}

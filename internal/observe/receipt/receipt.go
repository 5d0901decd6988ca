// Package receipt says what each reload cost: the record that the supervisor writes of a reload, and what the kernel said while the
// reload was under way.
package receipt

import (
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/supervisor/program"
)

// Receipt is the record of a reload with the kernel's figures. All durations are nanoseconds in JSON.
type Receipt struct {
	Program string `json:"program"`
	program.ReloadRecord
	Figures
}

// Figures are what the kernel says of a reload.
type Figures struct {
	Connections      []Sample       `json:"connections,omitempty"`       // still open on the generation that has to go
	ConnectionsError string         `json:"connections_error,omitempty"` // why they are not known
	AcceptQueue      map[string]int `json:"accept_queue,omitempty"`      // the longest queue seen, by listener
	ListenOverflows  int64          `json:"listen_overflows"`            // in the whole network namespace
	ListenDrops      int64          `json:"listen_drops"`
}

// Sample is one count of connections.
type Sample struct {
	At   time.Duration `json:"at_ns"` // since Decided
	Open int           `json:"open"`
}

// maxSamples bounds the samples of a receipt. When there are more, every other sample goes: hours take no more space than seconds.
const maxSamples = 64

func (f *Figures) sample(at time.Duration, open int) {
	if len(f.Connections) >= maxSamples {
		half := f.Connections[:0]
		for i := 0; i < len(f.Connections); i += 2 {
			half = append(half, f.Connections[i])
		}
		f.Connections = half
	}
	f.Connections = append(f.Connections, Sample{at, open})
}

func (f *Figures) queue(listener string, waiting int) {
	if f.AcceptQueue == nil {
		f.AcceptQueue = map[string]int{}
	}
	f.AcceptQueue[listener] = max(f.AcceptQueue[listener], waiting)
}

// copy returns a copy that shares nothing mutable.
func (f *Figures) copy() Figures {
	c := *f
	c.Connections, c.AcceptQueue = slices.Clone(f.Connections), maps.Clone(f.AcceptQueue)
	return c
}

// LongestQueue returns the longest accept queue of any listener.
func (f *Figures) LongestQueue() int {
	longest := 0
	for _, n := range f.AcceptQueue {
		longest = max(longest, n)
	}
	return longest
}

// handover returns how the generation that had to go finished, as far as that is known.
func (r *Receipt) handover() (f []zap.Field) {
	if r.Quiet > 0 {
		f = append(f, zap.Duration("quiet", r.Quiet))
	}
	if l := r.Left; l != nil {
		f = append(f, zap.Int("left_queued", l.Queued+l.Handshakes), zap.Int("left_unread", l.Unread), zap.Int("left_answering", l.Answering))
	}
	if r.Reset > 0 {
		f = append(f, zap.Int("reset", r.Reset))
	}
	if !r.RolledBack.IsZero() {
		f = append(f, zap.String("rolled_back_by", r.RolledBackBy))
	}
	return f
}

// Log writes the receipt as one line.
func (r *Receipt) Log(log *zap.Logger) {
	f := []zap.Field{zap.String("program", r.Program), zap.Int("generation", r.Generation)}
	if r.Replaced != 0 {
		f = append(f, zap.Int("replaced", r.Replaced))
	}
	f = append(f, zap.String("outcome", string(r.Outcome)), zap.String("reason", r.Reason))
	if r.AskedBy != "" {
		f = append(f, zap.String("asked_by", r.AskedBy))
	}
	f = append(f, zap.Duration("took", r.Took), zap.Duration("spawn_to_ready", r.SpawnToReady), zap.Duration("overlap", r.Overlap),
		zap.Duration("drain", r.Drain), zap.Int("killed", r.Killed), zap.Int("accept_queue", r.LongestQueue()),
		zap.Int64("listen_overflows", r.ListenOverflows), zap.Int64("listen_drops", r.ListenDrops))
	if r.Failure != nil {
		f = append(f, zap.String("step", r.Failure.Step), zap.String("failure", r.Failure.Reason))
	}
	f = append(f, r.handover()...)
	if n := len(r.Connections); n > 0 {
		f = append(f, zap.Int("connections_at_first", r.Connections[0].Open), zap.Int("connections_at_last", r.Connections[n-1].Open))
	}
	if len(r.Kills) > 0 {
		f = append(f, zap.String("killed_because", r.Kills[0].Reason))
	}
	if r.ConnectionsError != "" {
		f = append(f, zap.String("connections_error", r.ConnectionsError))
	}
	log.Info("reload receipt", f...)
}

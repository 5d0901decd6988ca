// Package receipt says what each reload cost: how long it took, how long two generations lived side by side, what became of the
// old one. It only listens to the supervisor's updates, and is told what the kernel says while something is under way.
package receipt

import (
	"time"

	"go.uber.org/zap"
)

// Outcome is how a reload ended.
type Outcome string

// The outcomes.
const (
	UnderWay Outcome = "under way"
	Served   Outcome = "served"  // the new generation serves
	Failed   Outcome = "failed"  // it has failed; the one before serves on, if there was one
	Stopped  Outcome = "stopped" // the program was stopped meanwhile
	Unknown  Outcome = "unknown" // it ended while updates were missed
)

// Outcomes lists those that a reload can end with.
func Outcomes() []Outcome { return []Outcome{Served, Failed, Stopped, Unknown} }

// Receipt is what is known of one reload. All durations are nanoseconds in JSON; what has not happened is zero.
type Receipt struct {
	Program    string    `json:"program"`
	Generation int       `json:"generation"`         // the new one
	Replaced   int       `json:"replaced,omitempty"` // the one that served before; 0: none did, it was a first start
	Outcome    Outcome   `json:"outcome"`
	Reason     string    `json:"reason,omitempty"`   // what asked for it
	AskedBy    string    `json:"asked_by,omitempty"` // who
	Began      time.Time `json:"began"`
	Decided    time.Time `json:"decided,omitzero"` // when it served or failed
	Ended      time.Time `json:"ended,omitzero"`   // when the generation that had to go was gone

	Took         time.Duration `json:"took_ns"`           // from Began to Decided
	SpawnToReady time.Duration `json:"spawn_to_ready_ns"` // from the first worker's start until the last one was ready
	Overlap      time.Duration `json:"overlap_ns"`        // while workers of both generations lived
	Drain        time.Duration `json:"drain_ns"`          // from Decided to Ended

	Failure *Failure `json:"failure,omitempty"`
	Killed  []Kill   `json:"killed,omitempty"`

	// What the kernel said while the reload was under way.
	Connections     []Sample       `json:"connections,omitempty"`       // still open on the generation that had to go
	ConnectionsWhy  string         `json:"connections_error,omitempty"` // why that is not known
	AcceptQueue     map[string]int `json:"accept_queue,omitempty"`      // the longest queue seen, by listener
	ListenOverflows int64          `json:"listen_overflows"`            // in the whole network namespace
	ListenDrops     int64          `json:"listen_drops"`

	Gap bool `json:"gap,omitempty"` // updates were missed: times are from when it was noticed
}

// Failure is why a new generation failed.
type Failure struct {
	Step   string   `json:"step"`
	Reason string   `json:"reason"`
	Worker int      `json:"worker,omitempty"`
	Slot   int      `json:"slot"`
	PID    int      `json:"pid,omitempty"`
	Tail   []string `json:"tail,omitempty"` // its last lines of stderr
}

// Kill is a worker that did not go by itself.
type Kill struct {
	Generation int    `json:"generation"`
	Worker     int    `json:"worker"`
	Slot       int    `json:"slot"`
	PID        int    `json:"pid,omitempty"`
	Reason     string `json:"reason"`
}

// Sample is one count of connections.
type Sample struct {
	At   time.Duration `json:"at_ns"` // since Decided
	Open int           `json:"open"`
}

// maxSamples bounds the samples of a receipt. When there are more, every other one goes: the course of hours has the same size
// as that of seconds.
const maxSamples = 64

func (r *Receipt) sample(at time.Duration, n int) {
	if len(r.Connections) >= maxSamples {
		half := r.Connections[:0]
		for i := 0; i < len(r.Connections); i += 2 {
			half = append(half, r.Connections[i])
		}
		r.Connections = half
	}
	r.Connections = append(r.Connections, Sample{at, n})
}

// copy shares nothing that will change.
func (r *Receipt) copy() Receipt {
	c := *r
	c.Killed = append([]Kill(nil), r.Killed...)
	c.Connections = append([]Sample(nil), r.Connections...)
	c.AcceptQueue = make(map[string]int, len(r.AcceptQueue))
	for name, n := range r.AcceptQueue {
		c.AcceptQueue[name] = n
	}
	return c
}

// LongestQueue is the longest accept queue of any listener.
func (r *Receipt) LongestQueue() int {
	longest := 0
	for _, n := range r.AcceptQueue {
		longest = max(longest, n)
	}
	return longest
}

// Message is the sentence in the log.
const Message = "reload receipt"

func (r *Receipt) askedBy() zap.Field {
	if r.AskedBy == "" {
		return zap.Skip()
	}
	return zap.String("asked_by", r.AskedBy)
}

// Log writes the receipt as one line.
func (r *Receipt) Log(log *zap.Logger) {
	f := []zap.Field{
		zap.String("program", r.Program), zap.Int("generation", r.Generation),
	}
	if r.Replaced != 0 {
		f = append(f, zap.Int("replaced", r.Replaced))
	}
	f = append(f,
		zap.String("outcome", string(r.Outcome)), zap.String("reason", r.Reason), r.askedBy(), zap.Duration("took", r.Took),
		zap.Duration("spawn_to_ready", r.SpawnToReady), zap.Duration("overlap", r.Overlap), zap.Duration("drain", r.Drain),
		zap.Int("killed", len(r.Killed)), zap.Int("accept_queue", r.LongestQueue()),
		zap.Int64("listen_overflows", r.ListenOverflows), zap.Int64("listen_drops", r.ListenDrops),
	)
	if r.Failure != nil {
		f = append(f, zap.String("step", r.Failure.Step), zap.String("failure", r.Failure.Reason))
	}
	if n := len(r.Connections); n > 0 {
		f = append(f, zap.Int("connections_at_first", r.Connections[0].Open), zap.Int("connections_at_last", r.Connections[n-1].Open))
	}
	if len(r.Killed) > 0 {
		f = append(f, zap.String("killed_because", r.Killed[0].Reason))
	}
	if r.ConnectionsWhy != "" {
		f = append(f, zap.String("connections_error", r.ConnectionsWhy))
	}
	if r.Gap {
		f = append(f, zap.Bool("gap", true))
	}
	log.Info(Message, f...)
}

// Package receipt reports the cost of each reload once, when the reload has ended.
package receipt

import (
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// Receipt is the record of a reload of a program. All durations are nanoseconds in JSON.
type Receipt struct {
	Program string `json:"program"`
	program.ReloadRecord
}

// Of makes receipts of the records of a program, the newest first.
func Of(name string, records []program.ReloadRecord) []Receipt {
	list := make([]Receipt, len(records))
	for i, record := range records {
		list[len(records)-1-i] = Receipt{name, record}
	}
	return list
}

// handover returns the fields about the generation that had to go.
func (r *Receipt) handover() (f []zap.Field) {
	if r.Quiet > 0 {
		f = append(f, zap.Duration("quiet", r.Quiet))
	}
	if l := r.Left; l != nil {
		f = append(f, zap.Int("left_queued", l.Queued+l.Handshakes), zap.Int("left_unread", l.Unread),
			zap.Int("left_answering", l.Answering), zap.Int("left_active", l.Active))
	}
	if r.Reset > 0 {
		f = append(f, zap.Int("reset", r.Reset))
	}
	if !r.RolledBack.IsZero() {
		f = append(f, zap.String("rolled_back_by", r.RolledBackBy))
	}
	return f
}

// Log writes the receipt as one line; at level debug after a failed start, whose failure is in the log already.
func (r *Receipt) Log(log *zap.Logger) {
	f := []zap.Field{zap.String("program", r.Program), zap.Int("generation", r.Generation)}
	if r.Replaced != 0 {
		f = append(f, zap.Int("replaced", r.Replaced))
	}
	f = append(f, zap.String("outcome", string(r.Outcome)), zap.String("reason", r.Reason))
	if r.AskedBy != "" {
		f = append(f, zap.String("asked_by", r.AskedBy))
	}
	f = append(f, zap.Duration("took", r.Took), zap.Duration("spawn_to_ready", r.SpawnToReady),
		zap.Duration("overlap", r.Overlap),
		zap.Duration("drain", r.Drain), zap.Int("killed", r.Killed))
	if r.Failure != nil {
		f = append(f, zap.String("step", r.Failure.Step), zap.String("failure", r.Failure.Reason))
	}
	f = append(f, r.handover()...)
	if len(r.Kills) > 0 {
		f = append(f, zap.String("killed_because", r.Kills[0].Reason))
	}
	f = append(f, zapcore.Field{Type: zapcore.SkipType, Interface: r}) // for people: Text
	level := zapcore.InfoLevel
	if r.Failure != nil && r.Replaced == 0 && r.AskedBy == "" {
		level = zapcore.DebugLevel
	}
	log.Log(level, "reload report", f...)
}

// Text is the line of Log for people. It leaves out what earlier lines of the log have said.
func (r *Receipt) Text() string {
	text := fmt.Sprintf("report on generation %d: %s after %s", r.Generation, r.Outcome.Text(), program.Short(r.Took))
	switch {
	case r.Replaced == 0 || r.Outcome != program.Serves:
	case r.Ended.IsZero():
		text += fmt.Sprintf("; generation %d still drains", r.Replaced)
	default:
		text += fmt.Sprintf("; %s beside generation %d, which drained %s; %d killed", program.Short(r.Overlap), r.Replaced,
			program.Short(r.Drain), r.Killed)
	}
	return text
}

// kept is how many receipts of each program are remembered as given away: more than have a record.
const kept = 40

// Recorder returns the receipt of each reload once. One goroutine at a time may use it.
type Recorder struct {
	given map[string][]reload // by program, oldest first
}

// reload is one reload of a program, also if the program was removed and configured again, and counts from 1.
type reload struct {
	generation int
	decided    int64
}

// NewRecorder returns a recorder that has given away nothing.
func NewRecorder() *Recorder { return &Recorder{given: map[string][]reload{}} }

// See returns the receipt that an update completes, or nil.
func (r *Recorder) See(u supervisor.Update) *Receipt {
	if u.Reload == nil {
		return nil
	}
	return r.give(u.Program, *u.Reload)
}

// Resync reads all records: at the beginning, and after missed updates. It returns the receipts that are complete, but
// not those of reloads that ended before this image began: the previous image has returned them.
func (r *Recorder) Resync(st *supervisor.Status) (done []Receipt) {
	for _, p := range st.Programs {
		for _, record := range p.Reloads {
			if c := r.give(p.Name, record); c != nil && !record.Ended.Before(st.Started) {
				done = append(done, *c)
			}
		}
	}
	maps.DeleteFunc(r.given, func(name string, _ []reload) bool { return st.Program(name) == nil })
	return done
}

// give returns the receipt of a record once, when the reload has ended.
func (r *Recorder) give(name string, record program.ReloadRecord) *Receipt {
	given, this := r.given[name], reload{record.Generation, record.Decided.UnixNano()}
	if record.Ended.IsZero() || slices.Contains(given, this) {
		return nil
	}
	r.given[name] = append(given[max(0, len(given)+1-kept):], this)
	return &Receipt{name, record}
}

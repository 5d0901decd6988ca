// Package receipt tells once of each reload that has ended what it cost.
package receipt

import (
	"fmt"
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

// handover returns how the generation that had to go finished, as far as that is known.
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

// Log writes the receipt as one line. One of a start that failed says no more than the failure did.
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
	if len(r.Kills.List()) > 0 {
		f = append(f, zap.String("killed_because", r.Kills.List()[0].Reason))
	}
	f = append(f, zapcore.Field{Type: zapcore.SkipType, Interface: r}) // for people: Text
	level := zapcore.InfoLevel
	if r.Failure != nil && r.Replaced == 0 && r.AskedBy == "" {
		level = zapcore.DebugLevel
	}
	log.Log(level, "reload report", f...)
}

// Text is the line of Log for people: what the lines before it do not say.
func (r *Receipt) Text() string {
	text := fmt.Sprintf("report on generation %d: %s", r.Generation, words[r.Outcome])
	if words[r.Outcome] == "" {
		text += string(r.Outcome)
	}
	text += " after " + program.Short(r.Took)
	if r.Replaced != 0 && r.Outcome == program.Serves {
		text += fmt.Sprintf("; %s beside generation %d, which drained %s; %d killed", program.Short(r.Overlap), r.Replaced,
			program.Short(r.Drain), r.Killed)
	}
	return text
}

// words are those for outcomes that are no words for people.
var words = map[program.Outcome]string{
	program.NotReady: "not ready in time", program.WorkerDown: "a worker failed", program.NotPrepared: "not prepared",
}

// kept is how many reloads of each program are remembered, at least: more than have a record.
const kept = 40

// Recorder returns the receipt of each reload once. One goroutine at a time may use it.
type Recorder struct {
	// as they were seen last, oldest first; of those that have ended, the receipt was given away
	programs map[string][]program.ReloadRecord
}

// NewRecorder returns a recorder that has seen nothing.
func NewRecorder() *Recorder { return &Recorder{programs: map[string][]program.ReloadRecord{}} }

// See records an update, and returns the receipt that it completes, or nil.
func (r *Recorder) See(u supervisor.Update) *Receipt {
	if u.Reload == nil {
		return nil
	}
	return r.take(u.Program, *u.Reload)
}

// Resync records the state of all records: at the beginning, and after missed updates. It returns the receipts that are
// complete, but not those of reloads that ended before this image began: the previous image has returned them.
func (r *Recorder) Resync(st *supervisor.Status) []Receipt {
	var done []Receipt
	there := map[string]bool{}
	for _, p := range st.Programs {
		there[p.Name] = true
		for _, record := range p.Reloads {
			if c := r.take(p.Name, record); c != nil && !record.Ended.Before(st.Started) {
				done = append(done, *c)
			}
		}
	}
	for name := range r.programs {
		if !there[name] {
			delete(r.programs, name)
		}
	}
	return done
}

// take stores a record, and returns its receipt once, when the record has ended.
func (r *Recorder) take(name string, record program.ReloadRecord) *Receipt {
	all := r.programs[name]
	switch i := slices.IndexFunc(all, func(k program.ReloadRecord) bool { return k.Generation == record.Generation }); {
	case i < 0:
		r.programs[name] = trim(append(all, record))
	case open(all[i]), record.Began.After(all[i].Decided):
		// the program was removed and configured again, and counts from 1
		all[i] = record
	default:
		return nil
	}
	if open(record) {
		return nil
	}
	return &Receipt{name, record}
}

// trim forgets the oldest of the reloads that have ended if there are too many.
func trim(all []program.ReloadRecord) []program.ReloadRecord {
	surplus := len(all) - kept
	return slices.DeleteFunc(all, func(k program.ReloadRecord) bool {
		surplus--
		return surplus >= 0 && !open(k)
	})
}

func open(r program.ReloadRecord) bool { return r.Ended.IsZero() }

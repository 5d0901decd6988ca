package receipt

import (
	"slices"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// kept is how many reloads of each program are remembered, at least: more than have a record.
const kept = 40

// Recorder returns the receipt of each reload once. One goroutine at a time may use it.
type Recorder struct {
	programs map[string][]program.ReloadRecord // as they were seen last, oldest first; of those that have ended, the receipt was given away
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

// Resync records the state of all records: at the beginning, and after missed updates. It returns the receipts that are complete,
// but not those of reloads that ended before this image began: the previous image has returned them.
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
	case open(all[i]), record.Began.After(all[i].Decided): // the program was removed and configured again, and counts from 1
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

package receipt

import (
	"slices"

	"example.org/supervisord/internal/observe/kernel"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// kept is of how many reloads of each program the figures are kept, at least: of more than have a record.
const kept = 40

// Recorder keeps the kernel's figures of reloads. It is plain data: no clock, no goroutine; not for several goroutines at once.
type Recorder struct {
	programs map[string][]*measured // oldest first
}

// measured is what is kept of one reload.
type measured struct {
	Figures
	record program.ReloadRecord // as it was told last
	before *kernel.Refused      // the counters as it began; nil: not known
	told   bool                 // its receipt is complete and was given away
}

func (m *measured) open() bool { return m.record.Ended.IsZero() }

// NewRecorder returns a recorder that has seen nothing.
func NewRecorder() *Recorder { return &Recorder{programs: map[string][]*measured{}} }

// See takes notice of an update, and returns the receipt that is complete with it, or nil.
func (r *Recorder) See(u supervisor.Update) *Receipt {
	if u.Reload == nil {
		return nil
	}
	return r.take(u.Program, *u.Reload)
}

// take takes notice of a record.
func (r *Recorder) take(program string, record program.ReloadRecord) *Receipt {
	m := r.find(program, record.Generation)
	switch {
	case m == nil:
		m = &measured{}
		r.add(program, m)
	case m.told && record.Began.After(m.record.Decided): // the program was removed and configured again, and counts from 1
		*m = measured{}
	}
	m.record = record
	if m.open() || m.told {
		return nil
	}
	m.told = true
	return &Receipt{program, record, m.copy()}
}

func (r *Recorder) add(program string, m *measured) {
	all := append(r.programs[program], m)
	surplus := len(all) - kept
	r.programs[program] = slices.DeleteFunc(all, func(m *measured) bool {
		surplus--
		return surplus >= 0 && !m.open()
	})
}

// Resync compares with the records themselves: at the beginning, for what another image has begun, and where updates were missed.
// It returns the receipts that became complete meanwhile; at the beginning the image before has told those that had ended.
func (r *Recorder) Resync(st *supervisor.Status, missed bool) []Receipt {
	var done []Receipt
	there := map[string]bool{}
	for _, p := range st.Programs {
		there[p.Name] = true
		for _, record := range p.Reloads {
			switch ended := !record.Ended.IsZero(); {
			case !ended || missed:
				if c := r.take(p.Name, record); c != nil {
					done = append(done, *c)
				}
			case record.Ended.Before(st.Started):
				r.add(p.Name, &measured{record: record, told: true})
			} // otherwise its update is on the way
		}
	}
	for name := range r.programs {
		if !there[name] {
			delete(r.programs, name)
		}
	}
	return done
}

func (r *Recorder) find(program string, generation int) *measured {
	for _, m := range r.programs[program] {
		if m.record.Generation == generation {
			return m
		}
	}
	return nil
}

// Busy reports whether a reload is under way.
func (r *Recorder) Busy() bool {
	for _, all := range r.programs {
		if slices.ContainsFunc(all, (*measured).open) {
			return true
		}
	}
	return false
}

// Receipts adds the figures to the records of a program, and returns the newest first.
func (r *Recorder) Receipts(program string, records []program.ReloadRecord) []Receipt {
	list := []Receipt{}
	for _, record := range slices.Backward(records) {
		c := Receipt{Program: program, ReloadRecord: record}
		if m := r.find(program, record.Generation); m != nil {
			c.Figures = m.copy()
		}
		list = append(list, c)
	}
	return list
}

package handover

import (
	"golang.org/x/sys/unix"
)

// CheckFD is the number of the descriptor with the record in the process that tries a new binary.
const CheckFD = 3

// Rehearsal is what a new binary is tried with: the record, and duplicates of every descriptor that it is to take over.
type Rehearsal struct {
	fds []int // as the record numbers them, from CheckFD on
}

// Rehearse makes a Rehearsal for the caller to Close. Without room for so many more descriptors it has only the record.
func Rehearse(src Predecessor) (*Rehearsal, error) {
	r := recordOf(src)
	list, err := memfd("record")
	if err != nil {
		return nil, err
	}
	rehearsal := &Rehearsal{[]int{list}}
	r.Descriptors = map[string]int{}
	for _, d := range descriptorsOf(src) {
		fd, err := d.duplicate()
		if err != nil {
			closeAll(rehearsal.fds[1:])
			rehearsal.fds, r.Descriptors = rehearsal.fds[:1], nil
			break
		}
		if fd >= 0 {
			r.Descriptors[d.name] = CheckFD + len(rehearsal.fds)
			rehearsal.fds = append(rehearsal.fds, fd)
		}
	}
	if err := writeRecord(list, 0, r, src); err != nil {
		rehearsal.Close()
		return nil, err
	}
	return rehearsal, nil
}

// Descriptors are those that the command must get, from CheckFD on.
func (r *Rehearsal) Descriptors() []int { return r.fds }

// Close closes the duplicates.
func (r *Rehearsal) Close() { closeAll(r.fds) }

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// CanEncode returns an error if this binary cannot write the record that it has read.
func (r *Record) CanEncode() error {
	fd, err := memfd("record")
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return newLog(fd, 0).putWhole(r, r.programs)
}

// recorded is a program of a record that was read.
type recorded struct{ *ProgramRecord }

func (r *Record) programs(yield func(Program) bool) {
	for i := range r.Programs {
		if !yield(recorded{&r.Programs[i]}) {
			return
		}
	}
}

func (p recorded) Record() ProgramRecord                  { return *p.ProgramRecord }
func (p recorded) Generation(number int) GenerationRecord { return *p.ProgramRecord.Generation(number) }
func (p recorded) Held(int) Adoptable                     { return nil }

func (p recorded) Worker(number int) WorkerRecord {
	_, g := p.Core.Find(number)
	return p.ProgramRecord.Generation(g.Number).Worker(number)
}

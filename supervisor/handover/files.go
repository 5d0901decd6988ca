package handover

import (
	"slices"

	"golang.org/x/sys/unix"
)

// recordFiles are the two memfds with the record in the store. One has the log; when that has grown to more than twice its whole record,
// the record of that time is written into the other one, which has the log then. So one of them is always complete.
type recordFiles struct {
	memfds   [2]int     // -1: not made yet
	current  int        // the one that has the newest complete record
	log      *logWriter // into the current one; nil: this process has written nothing yet
	sequence uint64     // of the newest batch
}

// slack is what the log may grow in any case, in bytes.
const slack = 64 << 10

func newRecordFiles() recordFiles { return recordFiles{memfds: [2]int{-1, -1}} }

// inherit continues with the files that were handed over.
func (f *recordFiles) inherit(h *Handover) {
	for i, name := range recordNames() {
		if fd, ok := h.memfds[name]; ok {
			f.memfds[i] = fd
		}
		if name == h.newest {
			f.current = i
		}
	}
	f.sequence = h.sequence
}

// open makes the two memfds.
func (f *recordFiles) open() (err error) {
	for i, name := range recordNames() {
		if f.memfds[i] < 0 {
			if f.memfds[i], err = memfd(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// files yields the memfds by their names in the store.
func (f *recordFiles) files() map[string]int {
	if f.memfds[0] < 0 {
		return nil
	}
	return map[string]int{recordFirst: f.memfds[0], recordSecond: f.memfds[1]}
}

// write writes down what was touched.
func (f *recordFiles) write(src Predecessor, t *touched) error {
	if f.log == nil || t.all || f.log.end > 2*f.log.base+slack {
		return f.rewrite(src)
	}
	if len(t.parts) == 0 && len(t.gone) == 0 {
		return nil
	}
	var head *Record
	if _, is := t.parts[part{}]; is {
		head = recordOf(src)
	}
	err := f.log.putTouched(src, head, t.parts, t.gone)
	f.sequence = f.log.sequence
	return err
}

// rewrite writes the whole record into the other file. The one that had it is complete until then.
func (f *recordFiles) rewrite(src Predecessor) error {
	other := 1 - f.current
	if err := truncate(f.memfds[other]); err != nil {
		return err
	}
	log := newLog(f.memfds[other], f.sequence)
	if err := log.putWhole(recordOf(src), src.Programs); err != nil {
		f.sequence = log.sequence // what is cut off must not look like the end of something newer
		return err
	}
	f.log, f.sequence, f.current = log, log.sequence, other
	return truncate(f.memfds[1-other]) // its memory is needed no more
}

// empty removes the record.
func (f *recordFiles) empty() {
	f.log = nil
	for _, fd := range slices.DeleteFunc(f.memfds[:], func(fd int) bool { return fd < 0 }) {
		unix.Ftruncate(fd, 0) //nolint:errcheck // the message that follows removes it, too
	}
}

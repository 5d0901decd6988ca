package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A record is written down as a log of batches. The first batches hold the whole record, the last of them is complete;
// every later one holds the parts that have changed since then. A batch is one line, with a length, a checksum and a
// sequence number, and JSON. A batch that was cut off by the death of its writer, and what follows it, does not count.

// recordMark begins a batch.
const recordMark = "supervisord-record"

// headSize is the length of the first line of a batch.
const headSize = len(recordMark) + len(" 0123456789 01234567 01234567890123456789\n")

// batch is a batch as it is read.
type batch struct {
	Version  int      // of the record; only the first batch has it
	Gone     []string // programs whose parts so far are void
	Parts    parts    // null: the part is gone
	Complete bool     // up to here the log has the whole record
}

// logWriter writes a log into a file, and remembers in written what the log says, so that the next batch has only what
// differs. It belongs to the loop, or to the one call that writes a whole record for an execve. The file stays the
// caller's. A logWriter is dropped after an error: the next record is written whole, into another file.
type logWriter struct {
	fd       int
	sequence uint64 // of the last batch
	end      int64  // of the log
	base     int64  // of the whole record at its beginning
	text     bytes.Buffer
	empty    bool  // the batch has no part yet
	err      error // the first one of the batch

	head     []byte // its part, without the clock
	programs map[string]*written
}

// newLog returns a writer that begins a log in an empty file.
func newLog(fd int, sequence uint64) *logWriter {
	return &logWriter{fd: fd, sequence: sequence, programs: map[string]*written{}}
}

// begin begins a batch. The version is 0 unless the batch is the first one.
func (l *logWriter) begin(version int, gone []string) {
	l.text.Reset()
	l.text.Write(make([]byte, headSize))
	l.text.WriteByte('{')
	if version > 0 {
		fmt.Fprintf(&l.text, `"Version":%d,`, version)
	}
	if len(gone) > 0 {
		fmt.Fprintf(&l.text, `"Gone":%s,`, l.encode(gone))
	}
	l.text.WriteString(`"Parts":{`)
	l.empty = true
}

// put adds a part to the batch. nil: the part is gone.
func (l *logWriter) put(key string, text []byte) {
	if !l.empty {
		l.text.WriteByte(',')
	}
	l.empty = false
	if text == nil {
		text = []byte("null")
	}
	l.text.WriteString(strconv.Quote(key))
	l.text.WriteByte(':')
	l.text.Write(text)
}

func (l *logWriter) encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("cannot encode the record: %w", err)
	}
	return text
}

// commit ends the batch and writes it.
func (l *logWriter) commit(complete bool) error {
	err := l.err
	l.err = nil
	if err != nil {
		return err
	}
	fmt.Fprintf(&l.text, "},\"Complete\":%t}\n", complete)
	text := l.text.Bytes()
	seal(text, l.sequence+1)
	if err := writeAt(l.fd, text, l.end); err != nil {
		return err
	}
	l.sequence++
	l.end += int64(len(text))
	if l.text.Cap() > 2*batchSize {
		l.text = bytes.Buffer{} // a rare large batch
	}
	return nil
}

// seal writes the first line of a batch into the room that it has.
func seal(text []byte, sequence uint64) {
	data := text[headSize:]
	copy(text, fmt.Sprintf("%s %010d %08x %020d\n", recordMark, len(data), crc32.ChecksumIEEE(data), sequence))
}

// writeAt writes text into a file, with one system call if the kernel takes all of it.
func writeAt(fd int, text []byte, at int64) error {
	for len(text) > 0 {
		n, err := unix.Pwrite(fd, text, at)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot write to a memfd: %w", err)
		}
		text, at = text[n:], at+int64(n)
	}
	return nil
}

// errNoRecord says that a file does not contain a complete record.
var errNoRecord = errors.New("no complete record")

// decode reads a log. It returns errNoRecord (wrapped) if the whole record is not in it, and another error for a
// record that is complete but not for this version. The sequence number is that of the last batch.
func decode(text []byte) (*Record, uint64, error) {
	data, sequence, text, err := nextBatch(text)
	if err != nil {
		return nil, 0, err
	}
	var versioned struct{ Version int }
	if err := json.Unmarshal(data, &versioned); err != nil {
		return nil, 0, fmt.Errorf("cannot read the record: %w", err)
	}
	if v := versioned.Version; v != recordVersion {
		return nil, 0, fmt.Errorf("the record has version %d, and this supervisord reads only version %d: "+
			"change between them by a restart, not by an upgrade in place", v, recordVersion)
	}
	r, sequence, err := decodeLog(data, sequence, text)
	if err != nil {
		return nil, 0, err
	}
	if err := r.check(); err != nil {
		return nil, 0, fmt.Errorf("cannot use the record: %w", err)
	}
	return r, sequence, nil
}

// decodeLog reads the log that begins with a batch, and continues with text.
func decodeLog(data []byte, sequence uint64, text []byte) (*Record, uint64, error) {
	parts := parts{}
	for complete := false; ; {
		var b batch
		if err := json.Unmarshal(data, &b); err != nil {
			return nil, 0, fmt.Errorf("cannot read the record: %w", err)
		}
		parts.add(&b)
		complete = complete || b.Complete
		next, n, rest, err := nextBatch(text)
		if err == nil && n == sequence+1 {
			data, sequence, text = next, n, rest
			continue
		}
		if !complete {
			return nil, 0, fmt.Errorf("%w: cut off", errNoRecord)
		}
		r, err := parts.record()
		return r, sequence, err
	}
}

// nextBatch checks the first line of a batch, and returns its JSON, its sequence number, and what follows the batch.
func nextBatch(text []byte) (data []byte, sequence uint64, rest []byte, err error) {
	head, data, found := bytes.Cut(text, []byte("\n"))
	words := strings.Fields(string(head[:min(len(head), 100)]))
	if !found || len(words) != 4 || words[0] != recordMark {
		return nil, 0, nil, fmt.Errorf("%w: it does not begin with %q", errNoRecord, recordMark)
	}
	length, errLength := strconv.Atoi(words[1])
	sequence, errSequence := strconv.ParseUint(words[3], 10, 64)
	if errLength != nil || errSequence != nil || length < 0 || length > len(data) {
		return nil, 0, nil, fmt.Errorf("%w: cut off", errNoRecord)
	}
	data, rest = data[:length:length], data[length:]
	if fmt.Sprintf("%08x", crc32.ChecksumIEEE(data)) != words[2] {
		return nil, 0, nil, fmt.Errorf("%w: damaged", errNoRecord)
	}
	return data, sequence, rest, nil
}

// parts are the parts of a record by their keys.
type parts map[string]json.RawMessage

// add applies a batch: parts that it has replace earlier ones, and a null takes one out.
func (all parts) add(b *batch) {
	for _, name := range b.Gone {
		for key := range all {
			if program, _, _ := strings.Cut(key, "/"); program == name {
				delete(all, key)
			}
		}
	}
	for key, part := range b.Parts {
		if string(part) == "null" {
			delete(all, key)
		} else {
			all[key] = part
		}
	}
}

// recordFiles are the two memfds with the record in the store. systemd has duplicates of both from the beginning, so a
// record costs no message. One has the log; when that has grown to more than twice its whole record, the record of that
// time is written into the other one, which has the log then. So one of them is always complete. The Store owns the
// memfds, and passes them on to the next image in an execve.
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
func (f *recordFiles) inherit(h *Inheritance) {
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

// compare finds out which workers of these programs differ from what the log says.
func (f *recordFiles) compare(src Predecessor, programs []string) changes {
	found := changes{}
	for _, name := range programs {
		var was map[int]workerState
		if f.log != nil && f.log.programs[name] != nil {
			was = f.log.programs[name].workers
		}
		found[name] = differing(was, src.Program(name).workerStates)
	}
	return found
}

// write writes down the changes, or the whole record.
func (f *recordFiles) write(src Predecessor, whole bool, c changes) error {
	if f.log == nil || whole || f.log.end > 2*f.log.base+slack {
		return f.rewrite(src)
	}
	err := f.log.putChanged(src, c)
	f.sequence = f.log.sequence
	return err
}

// rewrite writes the whole record into the other file. The file that had the record stays complete until then.
func (f *recordFiles) rewrite(src Predecessor) error {
	other := 1 - f.current
	if err := truncate(f.memfds[other]); err != nil {
		return err
	}
	log := newLog(f.memfds[other], f.sequence)
	if err := log.putWhole(headOf(src), programsOf(src)); err != nil {
		f.sequence = log.sequence // what is cut off must not look like the end of something newer
		return err
	}
	f.log, f.sequence, f.current = log, log.sequence, other
	return truncate(f.memfds[1-other]) // its memory is needed no more
}

// empty removes the record, and closes the memfds.
func (f *recordFiles) empty() {
	for _, fd := range f.files() {
		unix.Ftruncate(fd, 0) //nolint:errcheck // the message that follows removes it, too
		unix.Close(fd)
	}
	*f = newRecordFiles()
}

// memfd makes an anonymous file.
func memfd(name string) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("cannot create a memfd: %w", err)
	}
	return fd, nil
}

// truncate empties a memfd.
func truncate(fd int) error {
	if err := unix.Ftruncate(fd, 0); err != nil {
		return fmt.Errorf("cannot write to a memfd: %w", err)
	}
	return nil
}

// maxRecord bounds how much is read from a descriptor that claims to have a record, in bytes.
const maxRecord = 256 << 20

// readRecord reads the record in a memfd, whatever its offset is.
func readRecord(fd int) (*Record, uint64, error) {
	own, err := duplicate(fd)
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(own), "record")
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxRecord))
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the record at descriptor %d: %w", fd, err)
	}
	return decode(text)
}

func duplicate(fd int) (int, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot duplicate a descriptor: %w", err)
	}
	return dup, nil
}

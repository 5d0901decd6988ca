package handover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A record is written down as a log of batches. The first batches hold the whole record, the last of them is complete; every later one
// holds the parts that have changed since then. A batch is one line, with a length, a checksum and a sequence number, and JSON.
// A batch that was cut off by the death of its writer, and what follows it, does not count.

// recordMark begins a batch.
const recordMark = "supervisord-record"

// headSize is the length of the first line of a batch.
const headSize = len(recordMark) + len(" 0123456789 01234567 01234567890123456789\n")

// batch is a batch as it is read.
type batch struct {
	Version  int                     // of the record; only the first batch has it
	Gone     []string                // programs whose parts so far are void
	Parts    map[string]*encodedPart // nil: the part is gone
	Complete bool                    // up to here the log has the whole record
}

// encodedPart is a part of a record.
type encodedPart struct {
	Value json.RawMessage
	Exact []exactString `json:",omitempty"` // the strings in it that JSON cannot hold
}

// logWriter writes a log into a file.
type logWriter struct {
	fd       int
	sequence uint64 // of the last batch
	end      int64  // of the log
	base     int64  // of the whole record at its beginning
	text     bytes.Buffer
	json     *json.Encoder // into text
	first    bool          // the batch has no part yet
	err      error         // the first one of the batch

	configs    configNumbers
	lastConfig int
}

// newLog returns a writer that begins a log in an empty file.
func newLog(fd int, sequence uint64) *logWriter {
	l := &logWriter{fd: fd, sequence: sequence, configs: configNumbers{}}
	l.json = json.NewEncoder(&l.text)
	l.json.SetEscapeHTML(false)
	return l
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
		l.text.WriteString(`"Gone":`)
		l.encode(gone)
		l.text.WriteByte(',')
	}
	l.text.WriteString(`"Parts":{`)
	l.first = true
}

// put adds a part to the batch. nil: the part is gone.
func (l *logWriter) put(key string, value any) {
	if !l.first {
		l.text.WriteByte(',')
	}
	l.first = false
	l.text.WriteString(strconv.Quote(key))
	if value == nil {
		l.text.WriteString(":null")
		return
	}
	l.text.WriteString(`:{"Value":`)
	begin := l.text.Len()
	l.encode(value)
	if lossy(l.text.Bytes()[begin:]) {
		l.text.WriteString(`,"Exact":`)
		l.encode(inexact(value))
	}
	l.text.WriteByte('}')
}

func (l *logWriter) encode(value any) {
	if err := l.json.Encode(value); err != nil && l.err == nil {
		l.err = fmt.Errorf("cannot encode the record: %w", err)
	}
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

// decode reads a log. It returns errNoRecord (wrapped) if the whole record is not in it, and another error for a record that is complete
// but not for this version. The sequence number is that of the last batch.
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
type parts map[string]*encodedPart

func (all parts) add(b *batch) {
	for _, name := range b.Gone {
		for key := range all {
			if program, _, _ := strings.Cut(key, "/"); program == name {
				delete(all, key)
			}
		}
	}
	for key, part := range b.Parts {
		if part == nil {
			delete(all, key)
		} else {
			all[key] = part
		}
	}
}

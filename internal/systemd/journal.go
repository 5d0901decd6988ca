package systemd

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
)

// JournalSocket is where journald takes entries in its native protocol.
const JournalSocket = "/run/systemd/journal/socket"

// journalPatience is how long one entry may wait for a slow journald. Then the entry is lost, so that the service does
// not wait for it.
const journalPatience = 50 * time.Millisecond

// Journal is a zapcore.Core that writes entries to journald with their fields, by its native protocol
// (systemd.io/JOURNAL_NATIVE_PROTOCOL). A field "program" becomes SUPERVISORD_PROGRAM=, for `journalctl
// SUPERVISORD_PROGRAM=web`; and because `journalctl -u` shows only MESSAGE=, that is the entry's message followed by
// the fields as key=value.
//
// An entry that journald does not accept within 50 ms is lost. Then entries are lost without a wait until journald
// accepts one; that entry says how many (lost=N). If the journal cannot be reached at all, the fallback gets the entry.
type Journal struct {
	zapcore.LevelEnabler
	socket   *journalSocket
	fallback zapcore.Core
	context  []zapcore.Field // of With
}

// NewJournal opens journald's socket at path, usually JournalSocket. fallback gets what cannot be written; it may be
// zapcore.NewNopCore().
func NewJournal(path string, level zapcore.LevelEnabler, fallback zapcore.Core) (*Journal, error) {
	socket, err := openJournal(path)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the journal at %s: %w", path, err)
	}
	return &Journal{LevelEnabler: level, socket: socket, fallback: fallback}, nil
}

// With implements zapcore.Core.
func (j *Journal) With(fields []zapcore.Field) zapcore.Core {
	clone := *j
	clone.fallback = j.fallback.With(fields)
	clone.context = append(j.context[:len(j.context):len(j.context)], fields...)
	return &clone
}

// Check implements zapcore.Core.
func (j *Journal) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if j.Enabled(entry.Level) {
		return checked.AddCore(entry, j)
	}
	return checked
}

// Write implements zapcore.Core.
func (j *Journal) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	all := append(j.context[:len(j.context):len(j.context)], fields...)
	lost := j.socket.lost.Swap(0)
	if lost > 0 {
		all = append(all, zapcore.Field{Key: "lost", Type: zapcore.Int64Type, Integer: lost})
	}
	err := j.socket.send(journalEntry(entry, all), lost == 0)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		j.socket.lost.Add(lost + 1)
		return nil
	}
	j.socket.lost.Add(lost)
	return j.fallback.Write(entry, fields)
}

// Sync implements zapcore.Core. Nothing is held back.
func (j *Journal) Sync() error { return j.fallback.Sync() }

// Close closes the socket, for this Journal and every Journal derived by With; later entries go to the
// fallback.
func (j *Journal) Close() error { return j.socket.file.Close() }

// journalSocket is a connected datagram socket, not blocking.
type journalSocket struct {
	file *os.File
	raw  syscall.RawConn
	lost atomic.Int64 // lost entries that no entry has mentioned yet

	patience time.Duration // journalPatience
}

func openJournal(path string) (*journalSocket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &journalSocket{file: file, raw: raw, patience: journalPatience}, nil
}

// send hands one entry over, in a sealed memory file if it is too big for a datagram.
func (s *journalSocket) send(entry []byte, patient bool) error {
	err := s.write(entry, nil, patient)
	if err != unix.EMSGSIZE && err != unix.ENOBUFS {
		return err
	}
	memory, err := sealed(entry)
	if err != nil {
		return err
	}
	defer unix.Close(memory)
	return s.write(nil, unix.UnixRights(memory), patient)
}

// write waits for room if patient, but not forever. Where there is room, it does not matter how late it is: a process
// that waits for a processor loses nothing.
func (s *journalSocket) write(payload, rights []byte, patient bool) error {
	var err error
	try := func(fd uintptr) bool {
		for {
			_, err = unix.SendmsgN(int(fd), payload, rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	}
	if closed := s.raw.Control(func(fd uintptr) { try(fd) }); closed != nil {
		return closed
	}
	switch {
	case err != unix.EAGAIN:
		return err
	case !patient:
		return os.ErrDeadlineExceeded
	}
	if err := s.file.SetWriteDeadline(time.Now().Add(s.patience)); err != nil {
		return err
	}
	if over := s.raw.Write(try); over != nil {
		return over
	}
	return err
}

// sealed makes a memory file that cannot change any more, which journald insists on. Older ones compare all seals: one
// against execution, as spawn.Sealed sets it, would make them drop the entry.
func sealed(content []byte) (int, error) {
	fd, err := unix.MemfdCreate("journal-entry", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, err
	}
	for len(content) > 0 && err == nil {
		var n int
		n, err = unix.Write(fd, content)
		content = content[max(n, 0):]
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// identifier is what the journal shows before the PID.
const identifier = "supervisord"

// maxFieldName is journald's limit; it drops a field with a longer name.
const maxFieldName = 64

// pair is one field as text, its key as the logger wrote it.
type pair struct{ key, value string }

// journalEntry writes an entry in journald's native protocol.
func journalEntry(entry zapcore.Entry, fields []zapcore.Field) []byte {
	pairs := flatten(fields)
	out := appendField(nil, "MESSAGE", sentence(entry.Message, pairs))
	out = appendField(out, "PRIORITY", strconv.Itoa(priority(entry.Level)))
	out = appendField(out, "SYSLOG_IDENTIFIER", identifier)
	if entry.LoggerName != "" {
		out = appendField(out, fieldName("logger"), entry.LoggerName)
	}
	if entry.Caller.Defined {
		out = appendField(out, "CODE_FILE", entry.Caller.File)
		out = appendField(out, "CODE_LINE", strconv.Itoa(entry.Caller.Line))
		out = appendField(out, "CODE_FUNC", entry.Caller.Function)
	}
	if entry.Stack != "" {
		out = appendField(out, fieldName("stack"), entry.Stack)
	}
	for _, p := range pairs {
		out = appendField(out, fieldName(p.key), p.value)
	}
	return out
}

// appendField writes KEY=value, or for a value of several lines the key, its length and the value.
func appendField(out []byte, name, value string) []byte {
	out = append(out, name...)
	if strings.Contains(value, "\n") {
		out = append(out, '\n')
		out = binary.LittleEndian.AppendUint64(out, uint64(len(value)))
	} else {
		out = append(out, '=')
	}
	out = append(out, value...)
	return append(out, '\n')
}

// fieldName turns "took" into SUPERVISORD_TOOK, within what journald accepts.
func fieldName(key string) string {
	name := "SUPERVISORD_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	return name[:min(len(name), maxFieldName)]
}

// sentence is the message and the fields on one line, for a person.
func sentence(message string, pairs []pair) string {
	var line strings.Builder
	line.WriteString(message)
	for _, p := range pairs {
		if p.key == "errorVerbose" { // zap's second form of an error
			continue
		}
		line.WriteByte(' ')
		line.WriteString(p.key)
		line.WriteByte('=')
		line.WriteString(quoted(p.value))
	}
	return line.String()
}

// quoted puts ambiguous values in quotes.
func quoted(value string) string {
	if value == "" || strings.ContainsFunc(value, func(r rune) bool {
		return r == '"' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}) {
		return strconv.Quote(value)
	}
	return value
}

// flatten turns zap's fields into text, in their order.
func flatten(fields []zapcore.Field) []pair {
	var pairs []pair
	var space string
	for _, field := range fields {
		if field.Type == zapcore.NamespaceType {
			space += field.Key + "."
			continue
		}
		values := zapcore.NewMapObjectEncoder()
		field.AddTo(values)
		for _, key := range slices.Sorted(maps.Keys(values.Fields)) {
			pairs = append(pairs, pair{space + key, plain(values.Fields[key])})
		}
	}
	return pairs
}

// plain writes a value as zap's map encoder leaves it.
func plain(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case []byte:
		return base64.StdEncoding.EncodeToString(value)
	case time.Time:
		return value.Format(time.RFC3339Nano)
	case map[string]any, []any:
		if raw, err := json.Marshal(value); err == nil {
			return string(raw)
		}
	}
	return fmt.Sprint(value)
}

// JournalStream says whether file is the stream that systemd connected to the journal: whether it is the one that
// JOURNAL_STREAM names. The variable alone proves nothing: a child whose output is redirected inherits it, too.
func JournalStream(getenv func(string) string, file *os.File) bool {
	var device, inode uint64
	if _, err := fmt.Sscanf(getenv("JOURNAL_STREAM"), "%d:%d", &device, &inode); err != nil {
		return false
	}
	var found unix.Stat_t
	conn, err := file.SyscallConn() // Fd would make it blocking
	if err != nil {
		return false
	}
	if ctl := conn.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &found) }); ctl != nil || err != nil {
		return false
	}
	return uint64(found.Dev) == device && found.Ino == inode
}

// priority is the syslog level that stands for a zap level.
func priority(level zapcore.Level) int {
	switch {
	case level <= zapcore.DebugLevel:
		return 7
	case level == zapcore.InfoLevel:
		return 6
	case level == zapcore.WarnLevel:
		return 4
	case level == zapcore.ErrorLevel:
		return 3
	}
	return 2
}

// NewPrefixEncoder makes encoder write the priority before each line, as "<6>", which the journal takes off again
// (SyslogLevelPrefix=, sd-daemon(3)). Each line, because each becomes an entry. The journal already has the time, so
// the encoder should not write it.
func NewPrefixEncoder(encoder zapcore.Encoder) zapcore.Encoder {
	return prefixEncoder{Encoder: encoder, pool: buffer.NewPool()}
}

type prefixEncoder struct {
	zapcore.Encoder
	pool buffer.Pool
}

// Clone implements zapcore.Encoder.
func (e prefixEncoder) Clone() zapcore.Encoder {
	return prefixEncoder{Encoder: e.Encoder.Clone(), pool: e.pool}
}

// EncodeEntry implements zapcore.Encoder.
func (e prefixEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	plain, err := e.Encoder.EncodeEntry(entry, fields)
	if err != nil {
		return nil, err
	}
	defer plain.Free()
	prefixed := e.pool.Get()
	for line := range bytes.Lines(plain.Bytes()) {
		prefixed.AppendByte('<')
		prefixed.AppendInt(int64(priority(entry.Level)))
		prefixed.AppendByte('>')
		prefixed.Write(line)
	}
	return prefixed, nil
}

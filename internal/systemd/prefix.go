package systemd

import (
	"bytes"
	"fmt"
	"os"

	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
)

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
// (SyslogLevelPrefix=, sd-daemon(3)). Each line, because each becomes an entry. The journal already has the time, so the
// encoder should not write it.
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

package systemd

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
)

// JournalSocket is where journald takes entries in its native protocol.
const JournalSocket = "/run/systemd/journal/socket"

// journalPatience is how long one entry may wait for a slow journald. Then the entry is lost, so that the service does not
// wait for it.
const journalPatience = 50 * time.Millisecond

// Journal is a zapcore.Core that writes entries to journald with their fields, by its native protocol
// (systemd.io/JOURNAL_NATIVE_PROTOCOL). A field "program" becomes SUPERVISORD_PROGRAM=, for `journalctl
// SUPERVISORD_PROGRAM=web`; and because `journalctl -u` shows only MESSAGE=, that is the entry's message followed by the
// fields as key=value.
//
// An entry that journald does not accept within 50 ms is lost. Then entries are lost without a wait until journald accepts
// one; that entry says how many (lost=N). If the journal cannot be reached at all, the fallback gets the entry.
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
	return &journalSocket{file: file, raw: raw}, nil
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

// write waits for room if patient, but not forever.
func (s *journalSocket) write(payload, rights []byte, patient bool) error {
	if err := s.file.SetWriteDeadline(time.Now().Add(journalPatience)); err != nil {
		return err
	}
	var err error
	wait := s.raw.Write(func(fd uintptr) bool {
		for {
			_, err = unix.SendmsgN(int(fd), payload, rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
			if err != unix.EINTR {
				return err != unix.EAGAIN || !patient
			}
		}
	})
	if wait != nil {
		return wait
	}
	if err == unix.EAGAIN {
		return os.ErrDeadlineExceeded
	}
	return err
}

// sealed makes a memory file that cannot change any more, which journald insists on.
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
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

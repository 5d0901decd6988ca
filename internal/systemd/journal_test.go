package systemd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

// parse reads the native protocol back.
func parse(t *testing.T, raw string) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for raw != "" {
		line, rest, found := strings.Cut(raw, "\n")
		if !found {
			t.Fatalf("the entry is cut off in %.40q", raw)
		}
		name, value, single := strings.Cut(line, "=")
		if !single {
			size := binary.LittleEndian.Uint64([]byte(rest))
			value, rest = rest[8:8+size], rest[8+size+1:]
		}
		if _, twice := fields[name]; twice {
			t.Errorf("%s occurs twice", name)
		}
		fields[name], raw = value, rest
	}
	return fields
}

// journal connects a Journal to a fake journald.
func journal(t *testing.T, fallback zapcore.Core) (*server, *Journal) {
	t.Helper()
	s := newServer(t)
	j := must.Get(NewJournal(s.path, zap.InfoLevel, fallback))(t)
	t.Cleanup(func() { j.Close() })
	return s, j
}

func TestEntryHasItsFieldsTwice(t *testing.T) {
	s, j := journal(t, zapcore.NewNopCore())
	log := zap.New(j).With(zap.String("program", "web"))
	log.Warn("worker did not end", zap.Int("pid", 42), zap.Duration("took", 1500*time.Millisecond),
		zap.Error(errors.New("exit status 1")),
		zap.Strings("tail", []string{"a", "b"}), zap.Namespace("last"), zap.Bool("ok", true))
	got := parse(t, s.read().text)
	want := map[string]string{
		"MESSAGE": `worker did not end program=web pid=42 took=1.5s error="exit status 1" ` +
			`tail="[\"a\",\"b\"]" last.ok=true`,
		"PRIORITY":            "4",
		"SYSLOG_IDENTIFIER":   "supervisord",
		"SUPERVISORD_PROGRAM": "web",
		"SUPERVISORD_PID":     "42",
		"SUPERVISORD_TOOK":    "1.5s",
		"SUPERVISORD_ERROR":   "exit status 1",
		"SUPERVISORD_TAIL":    `["a","b"]`,
		"SUPERVISORD_LAST_OK": "true",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the fields are %v", got)
	}
}

func TestFieldCannotMakeAnother(t *testing.T) {
	s, j := journal(t, zapcore.NewNopCore())
	zap.New(j).Info("x\nPRIORITY=0", zap.String("a\n_UID=0", "b\nMESSAGE=c"), zap.String(strings.Repeat("k", 100), ""))
	got := parse(t, s.read().text)
	if got["PRIORITY"] != "6" || got["SUPERVISORD_A__UID_0"] != "b\nMESSAGE=c" || len(got) != 5 {
		t.Errorf("the fields are %q", got)
	}
	for name := range got {
		if len(name) > maxFieldName {
			t.Errorf("journald would drop %s", name)
		}
	}
}

func TestPriorities(t *testing.T) {
	for level, want := range map[zapcore.Level]int{
		zapcore.DebugLevel: 7, zapcore.InfoLevel: 6, zapcore.WarnLevel: 4, zapcore.ErrorLevel: 3,
		zapcore.DPanicLevel: 2, zapcore.PanicLevel: 2, zapcore.FatalLevel: 2,
	} {
		if got := priority(level); got != want {
			t.Errorf("%v has priority %d, want %d", level, got, want)
		}
	}
}

func TestBigEntryComesInASealedFile(t *testing.T) {
	s, j := journal(t, zapcore.NewNopCore())
	big := strings.Repeat("x", 4<<20)
	zap.New(j).Info("big", zap.String("tail", big))
	got := s.read()
	if got.text != "" || len(got.fds) != 1 {
		t.Fatalf("got %d bytes with %d descriptors", len(got.text), len(got.fds))
	}
	seals, err := unix.FcntlInt(uintptr(got.fds[0]), unix.F_GET_SEALS, 0)
	if all := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE; err != nil || seals != all {
		t.Errorf("the seals are %#x (%v), want %#x", seals, err, all)
	}
	file := must.Get(os.Open(fmt.Sprintf("/proc/self/fd/%d", got.fds[0])))(t)
	defer file.Close()
	raw := must.Get(io.ReadAll(file))(t)
	if fields := parse(t, string(raw)); fields["SUPERVISORD_TAIL"] != big {
		t.Errorf("the field has %d bytes, want %d", len(fields["SUPERVISORD_TAIL"]), len(big))
	}
}

// TestEntryIsNotLostWhereThereIsRoom: supervisord may get no processor for longer than it would wait for room.
func TestEntryIsNotLostWhereThereIsRoom(t *testing.T) {
	s, j := journal(t, zapcore.NewNopCore())
	j.socket.patience = -time.Second
	zap.New(j).Info("late")
	if got := parse(t, s.read().text); got["MESSAGE"] != "late" {
		t.Errorf("got %v", got)
	}
}

func TestLevelsBelowAreNotWritten(t *testing.T) {
	s, j := journal(t, zapcore.NewNopCore())
	zap.New(j).Debug("quiet")
	s.quiet()
}

func TestBlockedJournalLosesEntriesAndDelaysNothing(t *testing.T) {
	s, j := journal(t, zapcore.NewNopCore())
	log := zap.New(j)
	var written int
	for j.socket.lost.Load() == 0 {
		log.Info("fill")
		written++
	}
	start := time.Now()
	for range 999 {
		log.Info("fill")
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("999 entries took %v", took)
	}
	for range written - 1 {
		s.read()
	}
	log.Info("again")
	if got := parse(t, s.read().text); got["MESSAGE"] != "again lost=1000" || got["SUPERVISORD_LOST"] != "1000" {
		t.Errorf("the next entry is %q", got)
	}
	log.Info("and again")
	if got := parse(t, s.read().text); got["MESSAGE"] != "and again" {
		t.Errorf("the one after it is %q", got)
	}
}

func TestWithoutAJournalTheFallbackGetsTheEntry(t *testing.T) {
	fallback, logs := observer.New(zap.InfoLevel)
	s, j := journal(t, fallback)
	log := zap.New(j).With(zap.String("program", "web"))
	s.conn.Close()
	log.Info("hello", zap.Int("pid", 1))
	entries := logs.All()
	if len(entries) != 1 || entries[0].Message != "hello" || len(entries[0].Context) != 2 {
		t.Errorf("it has %v", entries)
	}
	if j, err := NewJournal("/nowhere/socket", zap.InfoLevel, fallback); err == nil {
		j.Close()
		t.Error("a socket that is not there is opened")
	}
}

func TestEveryLineHasThePriority(t *testing.T) {
	encoder := NewPrefixEncoder(zapcore.NewConsoleEncoder(
		zapcore.EncoderConfig{MessageKey: "m", StacktraceKey: "s"})).Clone()
	out, err := encoder.EncodeEntry(zapcore.Entry{Level: zapcore.ErrorLevel, Message: "gone", Stack: "a\nb"},
		[]zapcore.Field{zap.Int("pid", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if want := "<3>gone\t{\"pid\": 1}\n<3>a\n<3>b\n"; out.String() != want {
		t.Errorf("it writes %q, want %q", out.String(), want)
	}
}

func TestJournalStreamComparesTheFile(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	var stat unix.Stat_t
	must.Do(t, unix.Fstat(int(writer.Fd()), &stat))
	for value, want := range map[string]bool{
		fmt.Sprintf("%d:%d", stat.Dev, stat.Ino):   true,
		fmt.Sprintf("%d:%d", stat.Dev, stat.Ino+1): false,
		fmt.Sprintf("%d", stat.Dev):                false,
		"":                                         false,
		"a:b":                                      false,
	} {
		if got := JournalStream(variables{"JOURNAL_STREAM": value}.get, writer); got != want {
			t.Errorf("JOURNAL_STREAM=%s: %v, want %v", value, got, want)
		}
	}
}

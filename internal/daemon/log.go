package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/spool"
	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/internal/terminal"
)

// newLogger writes to stderr: text on a terminal, JSON lines elsewhere, and entries with fields to the journal if
// stderr is the journal. No line is sampled. A line is dropped only when stderr is not read, and that is logged.
func newLogger(c config.Settings, stderr *stream, face Face) (*zap.Logger, *zap.AtomicLevel) {
	level := zap.NewAtomicLevel()
	if l, err := zapcore.ParseLevel(c.LogLevel); err == nil {
		level.SetLevel(l)
	}
	core := logCore(c.LogFormat, level, stderr)
	if face != nil {
		core = face.Core(stderr, level)
	}
	log := zap.New(core)
	stderr.log.Store(log)
	return log, &level
}

func logCore(format string, level zapcore.LevelEnabler, out zapcore.WriteSyncer) zapcore.Core {
	e := zap.NewProductionEncoderConfig()
	e.TimeKey, e.EncodeTime = "time", zapcore.RFC3339NanoTimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	e.ConsoleSeparator = "  "
	switch {
	case format == "auto" && systemd.JournalStream(os.Getenv, os.Stderr):
		e.TimeKey, e.LevelKey = "", "" // the journal has them
		prefixed := zapcore.NewCore(systemd.NewPrefixEncoder(zapcore.NewConsoleEncoder(e)), out, level)
		if journal, err := systemd.NewJournal(systemd.JournalSocket, level, prefixed); err == nil {
			return journal
		}
		return prefixed
	case format == "console", format == "auto" && terminal.Is(os.Stderr):
		return console{LevelEnabler: level, out: out, paint: terminal.Colors(os.Stderr)}
	}
	return millis{zapcore.NewCore(zapcore.NewJSONEncoder(e), out, level)}
}

// millis is a core for JSON that writes durations as numbers, in fields that are named for it: took becomes took_ms.
type millis struct{ zapcore.Core }

// With implements zapcore.Core.
func (m millis) With(fields []zapcore.Field) zapcore.Core {
	return millis{m.Core.With(inMillis(fields))}
}

// Check implements zapcore.Core.
func (m millis) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return checked(m, e, c)
}

// Write implements zapcore.Core.
func (m millis) Write(e zapcore.Entry, fields []zapcore.Field) error {
	return m.Core.Write(e, inMillis(fields))
}

func checked(core zapcore.Core, e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if core.Enabled(e.Level) {
		return c.AddCore(e, core)
	}
	return c
}

func inMillis(fields []zapcore.Field) []zapcore.Field {
	fields = slices.Clone(fields)
	for i, f := range fields {
		if f.Type == zapcore.DurationType {
			ms := float64(time.Duration(f.Integer).Microseconds()) / 1000
			fields[i] = zapcore.Field{Key: f.Key + "_ms", Type: zapcore.Float64Type, Integer: int64(math.Float64bits(ms))}
		}
	}
	return fields
}

// console is a core that writes lines for a person: "15:04:05 web: worker 3 of generation 1 (PID 32015) is ready after
// 26ms".
type console struct {
	zapcore.LevelEnabler
	out     zapcore.WriteSyncer
	paint   terminal.Palette
	context []zapcore.Field
}

// With implements zapcore.Core.
func (c console) With(fields []zapcore.Field) zapcore.Core {
	c.context = slices.Concat(c.context, fields)
	return c
}

// Check implements zapcore.Core.
func (c console) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return checked(c, e, to)
}

// Sync implements zapcore.Core.
func (c console) Sync() error { return c.out.Sync() }

// Write implements zapcore.Core.
func (c console) Write(e zapcore.Entry, fields []zapcore.Field) error {
	_, err := c.out.Write([]byte(c.line(e, slices.Concat(c.context, fields))))
	return err
}

// unsaid are fields that a person does not need.
var unsaid = []string{"event", "errorVerbose"}

func (c console) line(e zapcore.Entry, fields []zapcore.Field) string {
	values, order := texts(fields)
	take := func(key, before, after string) string {
		text, ok := values[key]
		if !ok {
			return ""
		}
		delete(values, key)
		return before + text + after
	}
	b := e.Time.Format("15:04:05 ")
	switch {
	case e.Level >= zapcore.ErrorLevel:
		b += c.paint.Bad("ERROR ")
	case e.Level == zapcore.WarnLevel:
		b += c.paint.Warn("WARN ")
	}
	if report := text(fields); report != "" {
		b += c.paint.Strong(take("program", "", ":")) + " " + report
		if tail := take("stderr", "", ""); tail != "" {
			b += "  stderr=" + quoted(tail)
		}
		return b + "\n"
	}
	if subject := take("program", "", "") + take("generation", "[", "]"); subject != "" {
		b += c.paint.Strong(subject) + " "
	}
	b += e.Message + take("took", " after ", "") + take("pid", " (pid ", ")") + take("reason", ": ", "")
	for _, key := range order {
		if text, ok := values[key]; ok && !slices.Contains(unsaid, key) {
			b += "  " + key + "=" + quoted(text)
		}
	}
	return b + "\n"
}

// text returns the sentence of a report for people; "": the fields are not those of one.
func text(fields []zapcore.Field) string {
	for _, f := range fields {
		if report, is := f.Interface.(interface{ Text() string }); is {
			return report.Text()
		}
	}
	return ""
}

// texts returns fields as text, and the order of their keys.
func texts(fields []zapcore.Field) (values map[string]string, order []string) {
	values = map[string]string{}
	for _, f := range fields {
		e := zapcore.NewMapObjectEncoder()
		f.AddTo(e)
		for key, value := range e.Fields {
			if d, is := value.(time.Duration); is {
				value = d.Round(max(time.Millisecond, d.Truncate(time.Second)/1000))
				if d < time.Millisecond {
					value = d.Round(time.Microsecond)
				}
			}
			values[key] = fmt.Sprint(value)
			order = append(order, key)
		}
	}
	return values, order
}

// quoted puts values in quotes that would be ambiguous.
func quoted(text string) string {
	if text == "" || strings.ContainsAny(text, " =\"\n\t\x1b") {
		return strconv.Quote(text)
	}
	return text
}

// streamTimeout is how long the end of supervisord, or an upgrade, waits for the reader of its stdout or stderr.
const streamTimeout = 2 * time.Second

// streams is stdout and stderr of this process; zero: not open yet.
type streams struct{ stdout, stderr *stream }

func openOutput() streams { return streams{newStream(1, "stdout"), newStream(2, "stderr")} }

// sync writes what is left, if a reader takes it, and keeps the streams open.
func (o streams) sync() {
	for _, s := range []*stream{o.stderr, o.stdout} {
		if s != nil {
			s.Sync() //nolint:errcheck // there is no other place to report it
		}
	}
}

// close writes what is left, if a reader takes it.
func (o streams) close() {
	for _, s := range []*stream{o.stdout, o.stderr} {
		if s != nil {
			s.close()
		}
	}
}

// stream is stdout or stderr of this process, which may be a pipe without a reader or a terminal after Ctrl-S.
// A goroutine writes, so nothing else in the daemon waits for the reader.
type stream struct {
	name  string
	spool *spool.Spool
	log   atomic.Pointer[zap.Logger] // for lines that were dropped; nil: not known yet
}

func newStream(fd int, name string) *stream {
	s := &stream{name: name}
	s.spool = spool.New(descriptor(fd), nil, nil, s.lost)
	return s
}

// Complain writes a line to stderr without waiting forever for its reader.
func Complain(format string, args ...any) {
	s := newStream(2, "stderr")
	fmt.Fprintf(s, format+"\n", args...)
	s.close()
}

// Write implements io.Writer. It never waits.
func (s *stream) Write(lines []byte) (int, error) {
	s.spool.Put(lines)
	return len(lines), nil
}

// Sync waits until everything is written.
func (s *stream) Sync() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), streamTimeout,
		fmt.Errorf("not within %s", streamTimeout))
	defer cancel()
	if err := s.spool.Flush(ctx); err != nil {
		return fmt.Errorf("no process reads the %s of supervisord: %w", s.name, err)
	}
	return nil
}

func (s *stream) close() {
	s.spool.End()
	timeout := time.NewTimer(streamTimeout)
	defer timeout.Stop()
	select {
	case <-s.spool.Done():
	case <-timeout.C:
	}
}

// lost logs that lines were dropped, as soon as the log is read again.
func (s *stream) lost(l spool.Loss) {
	if log := s.log.Load(); log != nil && !l.Goes {
		log.Warn("log lines were dropped: "+s.name+" was not read", zap.Uint64("lines", l.Lines))
	}
}

// descriptor is a spool.Sink.
type descriptor int

// Write writes everything, even if a process that inherited the file, such as a worker of another user, has made it
// non-blocking.
func (fd descriptor) Write(b []byte) (int, error) {
	for done := 0; ; {
		n, err := unix.Write(int(fd), b[done:])
		done += max(n, 0)
		switch {
		case err == nil && done == len(b):
			return done, nil
		case err == nil, errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			writable := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			unix.Poll(writable, -1) //nolint:errcheck // the next write reports the error
		default:
			return done, err
		}
	}
}

// Open implements spool.Sink.
func (descriptor) Open() {}

// Reopen implements spool.Sink.
func (descriptor) Reopen() {}

// Close implements spool.Sink. The descriptor stays open for whatever prints the last error.
func (descriptor) Close() {}

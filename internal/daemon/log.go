package daemon

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/internal/terminal"
)

// newLogger writes to stderr: text on a terminal, JSON lines elsewhere, and entries with fields to the journal if stderr is the
// journal. No line is sampled. A line is dropped only when stderr is not read, and that is logged.
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

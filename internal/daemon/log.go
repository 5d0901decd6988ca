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
func newLogger(c config.Settings, stderr *stream) (*zap.Logger, *zap.AtomicLevel) {
	level := zap.NewAtomicLevel()
	if l, err := zapcore.ParseLevel(c.LogLevel); err == nil {
		level.SetLevel(l)
	}
	log := zap.New(logCore(c.LogFormat, level, stderr))
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
	case format == "start_server": // the reports have lines of their own: see starter.Lines
		e.TimeKey, e.LevelKey, e.NameKey = "", "", "name"
		matters := zap.LevelEnablerFunc(func(l zapcore.Level) bool {
			return level.Enabled(l) && (l >= zapcore.WarnLevel || level.Enabled(zapcore.DebugLevel))
		})
		return zapcore.NewCore(zapcore.NewConsoleEncoder(e), out, matters)
	case format == "console", format == "auto" && terminal.Is(os.Stderr):
		return console{LevelEnabler: level, out: out, paint: terminal.Colors(os.Stderr)}
	}
	return millis{zapcore.NewCore(zapcore.NewJSONEncoder(e), out, level)}
}

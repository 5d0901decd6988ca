package main

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/starter"
	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/supervisor/program"
)

// newLogger writes to stderr: for people on a terminal, JSON lines otherwise; and to the journal with its fields where stderr
// is the journal. No line is ever sampled away; one is dropped only when stderr is not read, and that is said.
func newLogger(c config.Supervisor, stderr *stream) (*zap.Logger, *zap.AtomicLevel) {
	level := zap.NewAtomicLevel()
	if l, err := zapcore.ParseLevel(c.LogLevel); err == nil {
		level.SetLevel(l)
	}
	log := zap.New(logCore(c.LogFormat, level, stderr))
	stderr.log.Store(log)
	return log, &level
}

func logCore(format string, level zapcore.LevelEnabler, out zapcore.WriteSyncer) zapcore.Core {
	if format == "auto" && systemd.JournalStream(os.Getenv, os.Stderr) {
		e := encoding()
		e.TimeKey, e.LevelKey = "", "" // the journal has them
		prefixed := zapcore.NewCore(systemd.NewPrefixEncoder(zapcore.NewConsoleEncoder(e)), out, level)
		if journal, err := systemd.NewJournal(systemd.JournalSocket, level, prefixed); err == nil {
			return journal
		}
		return prefixed
	}
	e := encoding()
	if format == "start_server" {
		return starterCore(e, out, level)
	}
	if format == "console" || format == "auto" && terminal(os.Stderr) {
		e.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		e.EncodeLevel = zapcore.CapitalLevelEncoder
		return zapcore.NewCore(zapcore.NewConsoleEncoder(e), out, level)
	}
	return zapcore.NewCore(zapcore.NewJSONEncoder(e), out, level)
}

// starterCore writes what start_server has no line for, if it matters: the lines are made of reports.
func starterCore(e zapcore.EncoderConfig, out zapcore.WriteSyncer, level zapcore.LevelEnabler) zapcore.Core {
	e.TimeKey, e.LevelKey, e.NameKey = "", "", "name"
	matters := zap.LevelEnablerFunc(func(l zapcore.Level) bool {
		return level.Enabled(l) && (l >= zapcore.WarnLevel || level.Enabled(zapcore.DebugLevel))
	})
	return zapcore.NewCore(zapcore.NewConsoleEncoder(e), out, matters)
}

// reporter writes the lines of start_server where log_format says so; nil: reports go to the log.
func (d *master) reporter() func(*config.Program, program.Report) {
	if d.settings.LogFormat != "start_server" {
		return nil
	}
	d.lines = starter.NewLines(d.stderr)
	return func(c *config.Program, r program.Report) {
		d.lines.See(c, r)
		d.starter.see(r)
	}
}

func encoding() zapcore.EncoderConfig {
	e := zap.NewProductionEncoderConfig()
	e.TimeKey = "time"
	e.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	e.ConsoleSeparator = "  "
	return e
}

func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// stopsBackground reports whether a terminal stops jobs in the background that write to it (stty tostop).
func stopsBackground(f *os.File) bool {
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && t.Lflag&unix.TOSTOP != 0
}

package supervisor

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"example.org/supervisord/supervisor/program"
)

// level is the log level of a report.
func level(r program.Report) zapcore.Level {
	switch r.Kind {
	case program.TrialFailed, program.NothingServes:
		return zapcore.ErrorLevel
	case program.ReloadRetry, program.ReloadDropped, program.ReloadHeld, program.ReloadFull, program.ReloadDamped, program.CanaryRefused,
		program.GenerationBusy, program.ConnectionsReset, program.RolledBack, program.WorkerDied, program.WorkerLate, program.WorkerKilled,
		program.WorkerLeaving, program.StartRetry, program.SlotRetry, program.PathRestored, program.PathTaken:
		return zapcore.WarnLevel
	case program.WorkerSpawned, program.WorkerStopping:
		return zapcore.DebugLevel
	}
	return zapcore.InfoLevel
}

// report tells everyone of a report. In the log it is one line: a fixed sentence, and fields.
func (p *runner) report(r program.Report) {
	p.s.subscribers.publish(&Update{time.Now(), p.core.Name, r.Kind.ID(), r})
	if p.s.Report != nil {
		p.s.Report(p.core.Config, r)
		return
	}
	if e := p.log.Check(level(r), string(r.Kind)); e != nil {
		e.Write(fields(r)...)
	}
}

func fields(r program.Report) []zap.Field {
	f := []zap.Field{zap.String("event", r.Kind.ID())}
	number := func(key string, n int) {
		if n != 0 {
			f = append(f, zap.Int(key, n))
		}
	}
	number("generation", r.Generation)
	number("serving", r.Serving)
	number("worker", r.Worker)
	if r.Worker != 0 || r.Kind == program.SlotRetry {
		f = append(f, zap.Int("slot", r.Slot))
	}
	number("pid", r.PID)
	text := func(key, s string) {
		if s != "" {
			f = append(f, zap.String(key, s))
		}
	}
	text("listener", r.Listener)
	text("signal", r.Signal)
	text("step", r.Step)
	text("reason", r.Reason)
	text("asked_by", r.AskedBy)
	switch r.Kind {
	case program.CanaryHeld, program.CanaryWatched, program.ShareChanged:
		if r.Reload != nil && r.Reload.Share > 0 {
			text("share", program.Percentage(r.Reload.Share))
		}
	}
	if r.Took != 0 {
		f = append(f, zap.Duration("took", r.Took))
	}
	if r.After != 0 {
		f = append(f, zap.Duration("after", r.After))
	}
	number("connections", r.Reset)
	number("killed", r.Killed)
	if len(r.Tail) > 0 {
		f = append(f, zap.Strings("stderr", r.Tail))
	}
	return f
}

// askedBy is the log field that says who asked for something.
func askedBy(who string) zap.Field {
	if who == "" {
		return zap.Skip()
	}
	return zap.String("asked_by", who)
}

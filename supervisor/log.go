package supervisor

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// level says how loud a report is.
func (r Report) level() zapcore.Level {
	switch r.Kind {
	case TrialFailed:
		return zapcore.ErrorLevel
	case ReloadRetry, ReloadDropped, ReloadHeld, ReloadFull, ReloadDamped, CanaryRefused, WorkerDied, WorkerLate, WorkerKilled, WorkerLeaving, StartRetry, SlotRetry:
		return zapcore.WarnLevel
	case WorkerSpawned, WorkerStopping:
		return zapcore.DebugLevel
	}
	return zapcore.InfoLevel
}

// report tells everyone of a report. In the log it is one event, one line, one fixed sentence plus fields.
func (s *Supervisor) report(p *program, r Report) {
	s.publish(Update{time.Now(), p.core.Name, r})
	if s.Report != nil {
		s.Report(p.core.Config, r)
		return
	}
	if e := s.Log.Check(r.level(), string(r.Kind)); e != nil {
		e.Write(r.fields(p.core.Name)...)
	}
}

func (r Report) fields(program string) []zap.Field {
	f := []zap.Field{zap.String("program", program)}
	number := func(key string, n int) {
		if n != 0 {
			f = append(f, zap.Int(key, n))
		}
	}
	number("generation", r.Generation)
	number("serving", r.Serving)
	number("worker", r.Worker)
	if r.Worker != 0 || r.Kind == SlotRetry {
		f = append(f, zap.Int("slot", r.Slot))
	}
	number("pid", r.PID)
	text := func(key, s string) {
		if s != "" {
			f = append(f, zap.String(key, s))
		}
	}
	text("signal", r.Signal)
	text("step", r.Step)
	text("reason", r.Reason)
	text("asked_by", r.AskedBy)
	if r.Took != 0 {
		f = append(f, zap.Duration("took", r.Took))
	}
	if r.After != 0 {
		f = append(f, zap.Duration("after", r.After))
	}
	number("killed", r.Killed)
	if len(r.Tail) > 0 {
		f = append(f, zap.Strings("stderr", r.Tail))
	}
	return f
}

// askedBy is the field that says who asked for something.
func askedBy(who string) zap.Field {
	if who == "" {
		return zap.Skip()
	}
	return zap.String("asked_by", who)
}

package supervisor

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"example.org/supervisord/supervisor/program"
)

// report publishes a report: to the log, as the sentence of its kind and fields on one line, and to every subscriber.
func (p *runner) report(r program.Report) {
	level, text := r.Level(), r.Text(p.core.Name)
	p.s.subscribers.publish(&Update{time.Now(), p.core.Name, level, text, r})
	if p.s.Report != nil {
		p.s.Report(p.core.Config, r)
		return
	}
	l, _ := zapcore.ParseLevel(string(level)) // a level of the core is one of the log
	if e := p.log.Check(l, r.Kind.Sentence()); e != nil {
		e.Write(fields(r, text)...)
	}
}

// reported is the log field with the kind of a report. A log for people shows Text in place of the message and the
// other fields.
type reported struct {
	kind program.ReportKind
	text string
}

// String returns the kind.
func (e reported) String() string { return string(e.kind) }

// Text says what has happened.
func (e reported) Text() string { return e.text }

func fields(r program.Report, said string) []zap.Field {
	f := []zap.Field{zap.Stringer("event", reported{r.Kind, said})}
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
	if len(r.Awaits) > 0 {
		f = append(f, zap.Strings("awaits", r.Awaits))
	}
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

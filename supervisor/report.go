package supervisor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
)

// report publishes a report: to the log, as the sentence of its kind and fields on one line, and to every subscriber. A
// report that decides a reload, or promises one, is recorded before: see lasting.
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

// fieldList is the fields of a line in the log. What is zero is left out.
type fieldList []zap.Field

func (f *fieldList) number(key string, n int) {
	if n != 0 {
		*f = append(*f, zap.Int(key, n))
	}
}

func (f *fieldList) text(key, s string) {
	if s != "" {
		*f = append(*f, zap.String(key, s))
	}
}

func fields(r program.Report, said string) []zap.Field {
	f := fieldList{zap.Stringer("event", reported{r.Kind, said})}
	f.number("generation", r.Generation)
	f.number("serving", r.Serving)
	f.number("worker", r.Worker)
	if r.Worker != 0 || r.Kind == program.SlotRetry {
		f = append(f, zap.Int("slot", r.Slot))
	}
	f.number("pid", r.PID)
	f.text("listener", r.Listener)
	if len(r.Awaits) > 0 {
		f = append(f, zap.Strings("awaits", r.Awaits))
	}
	f.text("signal", r.Signal)
	f.text("step", r.Step)
	f.text("reason", r.Reason)
	f.text("asked_by", r.AskedBy)
	switch r.Kind {
	case program.CanaryHeld, program.CanaryWatched, program.ShareChanged:
		if r.Reload != nil && r.Reload.Share > 0 {
			f.text("share", program.Percentage(r.Reload.Share))
		}
	}
	if r.Took != 0 {
		f = append(f, zap.Duration("took", r.Took))
	}
	if r.After != 0 {
		f = append(f, zap.Duration("after", r.After))
	}
	f.number("connections", r.Reset)
	f.number("killed", r.Killed)
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

// Update is a report as subscribers get it. All subscribers share it: do not change it.
type Update struct {
	Time    time.Time     `json:"time"`
	Program string        `json:"program"`
	Level   program.Level `json:"level"`
	Text    string        `json:"text"` // what happened, for people
	program.Report
}

// subscription is how many updates may wait for a subscriber that does not read, before its channel is closed.
const subscription = 4096

// subscribers get every update. They belong to the loop.
type subscribers []chan *Update

func (s *subscribers) add() <-chan *Update {
	c := make(chan *Update, subscription)
	*s = append(*s, c)
	return c
}

func (s *subscribers) remove(updates <-chan *Update) {
	*s = slices.DeleteFunc(*s, func(c chan *Update) bool {
		if c == updates {
			close(c)
		}
		return c == updates
	})
}

// publish sends an update to every subscriber. It drops a subscriber that does not read, because the loop never waits.
func (s *subscribers) publish(u *Update) {
	*s = slices.DeleteFunc(*s, func(c chan *Update) bool {
		select {
		case c <- u:
			return false
		default:
			close(c)
			return true
		}
	})
}

func (s *subscribers) end() {
	for _, c := range *s {
		close(c)
	}
	*s = nil
}

// Systemd tells the service manager what happens (sd_notify(3)). None of its methods waits. An error says that a
// message was not accepted; nothing repeats it but the next change.
type Systemd interface {
	record.FDStore
	Ready() error
	Stopping() error
	Status(text string) error
	Watchdog() error
	ExtendTimeout(d time.Duration) error
	WatchdogInterval() time.Duration // 0: no watchdog
}

// serviceNotifier tells the service manager what has changed. It remembers the last message.
type serviceNotifier struct {
	to       Systemd // nil: there is no service manager
	log      *zap.Logger
	ready    bool
	stopping bool
	status   string
	deaf     string // why it did not accept the last message; "": it did
	ticker   *time.Ticker
	changed  bool // what overview says: the glimpse of a program, or the programs
}

// glimpse is the part of a program's state that the service manager is told, as of the program's last step. With
// hundreds of programs a round looks only at those that have stepped, and says something only if a glimpse differs.
type glimpse struct {
	starts  bool      // nothing has served yet
	horizon time.Time // when the last of its deadlines ends that are running
	summary string
}

func newServiceNotifier(to Systemd, log *zap.Logger) serviceNotifier {
	n := serviceNotifier{to: to, log: log, changed: true}
	if to == nil {
		return n
	}
	if interval := to.WatchdogInterval(); interval > 0 {
		n.ticker = time.NewTicker(interval / 2)
		n.alive() // the image before may have been about to: a series of upgrades would starve the watchdog
	}
	return n
}

// watchdog wakes the loop when it has to show the service manager that it runs. Without a watchdog the channel is nil.
func (n *serviceNotifier) watchdog() <-chan time.Time {
	if n.ticker == nil {
		return nil
	}
	return n.ticker.C
}

func (n *serviceNotifier) alive() {
	n.to.Watchdog() //nolint:errcheck // the next one tells
}

// sent logs why a message was not accepted, once for a series of messages.
func (n *serviceNotifier) sent(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != n.deaf {
		n.log.Warn("cannot tell systemd", zap.Error(err))
	}
	n.deaf = why
}

// patience is added to every deadline that supervisord tells the service manager.
const patience = 10 * time.Second

// tell tells the service manager what has changed.
//
// READY=1 is sent when every program serves, or its first start has failed and is being retried: one broken program
// must not keep a machine from booting, or keep "systemctl start" waiting forever. The status names the program.
func (s *Supervisor) tell() {
	n := &s.notifier
	if n.to == nil || !n.changed {
		return
	}
	n.changed = false
	if s.stopping() && !n.stopping {
		n.stopping = true
		n.sent(n.to.Stopping())
	}
	started, end, text := s.overview()
	// The change may have begun a start, a reload or a stop, whose timeout runs only from now on: an extension that was
	// asked for before does not count for it.
	if end.After(time.Now()) {
		n.sent(n.to.ExtendTimeout(time.Until(end.Add(patience))))
	}
	if text != n.status {
		n.status = text
		n.sent(n.to.Status(text))
	}
	if !n.ready && started {
		n.ready = true
		n.sent(n.to.Ready())
	}
}

// maxOverview is how long the line about all programs grows, in bytes: systemd.Notify cuts a status off there.
const maxOverview = 1024

// overview reports whether every program serves or is being retried; when the last of the deadlines that are running
// ends; and the state of every program in one line, for "systemctl status". It looks at no program: see glance.
func (s *Supervisor) overview() (started bool, end time.Time, line string) {
	started, end = true, s.delayEnds
	var words strings.Builder
	for p := range s.programs.all() {
		started = started && !p.glimpse.starts
		if t := p.glimpse.horizon; t.After(end) {
			end = t
		}
		if words.Len() > 0 && words.Len() <= maxOverview {
			words.WriteString("; ")
		}
		if words.Len() <= maxOverview {
			words.WriteString(p.glimpse.summary)
		}
	}
	line = cmp.Or(words.String(), "no programs")
	if s.stopping() {
		line = "stopping: " + words.String()
	}
	return started, end, line
}

// glance notes what the service manager has to be told of a program that has stepped.
func (p *runner) glance() {
	n := &p.s.notifier
	if n.to == nil {
		return
	}
	before := p.glimpse
	p.glimpse = glimpse{
		starts:  p.core.State() == program.StartingUp && p.core.Serving == nil && p.core.Failures == 0,
		horizon: p.core.Horizon(), summary: p.summary(),
	}
	n.changed = n.changed || p.glimpse != before
}

// summary is the core's summary, and the orphans that serve instead of the program.
func (p *runner) summary() string {
	text := p.core.Summary()
	if n := len(p.s.Orphans.Of(p.core.Name)); n > 0 {
		text += fmt.Sprintf(", orphaned workers serve meanwhile (%d)", n)
	}
	for _, cg := range p.kept() {
		if where := p.core.Lent[cg.Number]; where != "" {
			text += fmt.Sprintf(", generation %d keeps serving at %s", cg.Number, where)
		}
	}
	if names := p.users(); p.ending != nil && len(names) > 0 {
		text += ", stops when these have stopped: " + strings.Join(names, ", ")
	}
	if names := p.successors(); p.ending != nil && len(names) > 0 {
		text += ", stops when these serve, which have its listeners: " + strings.Join(names, ", ")
	}
	return text
}

package supervisor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/supervisor/program"
)

// Systemd is how the service manager is told what goes on (sd_notify(3)). None of its methods waits.
type Systemd interface {
	Store
	Ready() error
	Stopping() error
	Status(text string) error
	Watchdog() error
	ExtendTimeout(d time.Duration) error
	WatchdogInterval() time.Duration // 0: no watchdog
}

// teller remembers what the service manager was told last.
type teller struct {
	to       Systemd // nil: nobody
	ready    bool
	stopping bool
	status   string
	until    time.Time // until when it waits patiently
	deaf     string    // why the last message was not taken; "": it was
	ticker   *time.Ticker
}

func newTeller(to Systemd) teller {
	t := teller{to: to}
	if to == nil {
		return t
	}
	if interval := to.WatchdogInterval(); interval > 0 {
		t.ticker = time.NewTicker(interval / 2)
	}
	return t
}

// watchdog wakes the loop when it has to show that it runs; it is nil, which never does, where no watchdog is set.
func (t *teller) watchdog() <-chan time.Time {
	if t.ticker == nil {
		return nil
	}
	return t.ticker.C
}

// patience is added to every deadline that the service manager is told.
const patience = 10 * time.Second

// tell tells the service manager what has changed.
//
// READY=1 is sent when every program serves, or its first start has failed and is being retried: one broken program must
// not keep a machine from booting, nor "systemctl start" waiting for ever. The status says which one it is.
func (s *Supervisor) tell() {
	t := &s.teller
	if t.to == nil {
		return
	}
	note := func(err error) {
		why := ""
		if err != nil {
			why = err.Error()
		}
		if why != "" && why != t.deaf { // once, and not for each of many messages
			s.Log.Warn("cannot tell systemd", zap.Error(err))
		}
		t.deaf = why
	}
	if s.stopping && !t.stopping {
		t.stopping = true
		note(t.to.Stopping())
	}
	text := s.statusLine()
	// A change may have begun a start, a reload or a stop, whose timeout runs only from now on: what was asked for before does
	// not count for it.
	if end := s.horizon(); end.After(t.until) || text != t.status && end.After(time.Now()) {
		t.until = end.Add(patience)
		note(t.to.ExtendTimeout(time.Until(t.until)))
	}
	if text != t.status {
		t.status = text
		note(t.to.Status(text))
	}
	if !t.ready && s.started() {
		t.ready = true
		note(t.to.Ready())
	}
}

func (t *teller) alive() {
	t.to.Watchdog() //nolint:errcheck // the next one tells
}

// started reports whether every program serves, or is being retried.
func (s *Supervisor) started() bool {
	for _, p := range s.programs {
		if p.core.State() == program.StartingUp && p.core.Serving == nil && p.core.Failures == 0 {
			return false
		}
	}
	return true
}

// horizon is when the last of the deadlines that are running ends: until then something is under way that may take so long.
func (s *Supervisor) horizon() time.Time {
	var end time.Time
	for _, p := range s.programs {
		if t := p.core.Horizon(); t.After(end) {
			end = t
		}
	}
	return end
}

// statusLine is one line for "systemctl status": every program with its state and its generation.
func (s *Supervisor) statusLine() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(s.programs)) {
		words = append(words, s.summary(s.programs[name]))
	}
	if s.stopping {
		return "stopping: " + strings.Join(words, "; ")
	}
	if len(words) == 0 {
		return "no programs"
	}
	return strings.Join(words, "; ")
}

// summary is that of the core, and who serves in its place.
func (s *Supervisor) summary(p *runner) string {
	text := p.core.Summary()
	if n := len(s.orphansOf(p.core.Name)); n > 0 {
		text += fmt.Sprintf(", orphaned workers serve meanwhile (%d)", n)
	}
	return text
}

package supervisor

import (
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
)

// Signals is what the operator asks for. HUP and USR1 have a channel each, so that a storm of them cannot crowd out the others.
type Signals struct {
	Reload  <-chan siginfo.Signal // HUP
	Reopen  <-chan siginfo.Signal // USR1
	Upgrade <-chan siginfo.Signal // USR2
	Leave   <-chan siginfo.Signal // RTMIN+1
	Scale   <-chan siginfo.Signal // TTIN, TTOU
	Stop    <-chan siginfo.Signal // TERM, INT, QUIT
}

// bySignal is who asks by a signal: "signal HUP from bash (pid 4711, uid 0)".
func (s *Supervisor) bySignal(sig siginfo.Signal) string {
	name := config.SignalName(sig.Number)
	if sig.Number == record.LeaveSignal {
		name = "RTMIN+1"
	}
	switch {
	case sig.Code == siginfo.FromKernel:
		return program.BySignal(name, "the terminal")
	case sig.PID == 0:
		return program.BySignal(name, "outside this PID namespace")
	}
	process := fmt.Sprintf("%s (pid %d, uid %d)", senderName(sig), sig.PID, sig.UID)
	if p, w := s.programs.worker(s.Launcher.Owner(sig.Sender.Lineage)); w > 0 {
		process += fmt.Sprintf(" of worker %d of program %s", w, p.core.Name)
	}
	return program.BySignal(name, process)
}

// notInNames keeps a process from choosing a name that says something about its sender.
var notInNames = strings.NewReplacer("(", "?", ")", "?", ",", "?", ":", "?")

func senderName(sig siginfo.Signal) string {
	if name := notInNames.Replace(output.Printable(sig.Sender.Name)); name != "" {
		return name
	}
	return "a process that has ended"
}

// worker returns the program and the number of a worker; 0: it has none any more.
func (programs programs) worker(h Handle) (*runner, int) {
	if h == nil {
		return nil, 0
	}
	for _, p := range programs {
		for number, w := range p.workers {
			if w.Handle == h {
				return p, number
			}
		}
	}
	return nil, 0
}

// refuses reports whether supervisord does not obey a signal to stop, because a worker with listening sockets, or a process that it
// started, has sent it: programs that replace themselves stop their parent, which they take for their predecessor. The worker has failed.
// Other workers may stop supervisord, such as one that watches over a container.
func (s *Supervisor) refuses(sig siginfo.Signal) bool {
	h := s.Launcher.Owner(sig.Sender.Lineage)
	if h == nil || !h.Serves() {
		return false
	}
	name := config.SignalName(sig.Number)
	s.Log.Warn("a worker told supervisord to stop; that is not obeyed", zap.String("signal", name), askedBy(s.bySignal(sig)))
	p, number := s.programs.worker(h)
	if number == 0 {
		return true
	}
	reason := fmt.Sprintf("%s (pid %d) sent %s to supervisord, its parent: configure the program not to stop its parent", senderName(sig), sig.PID, name)
	if w, _ := p.core.Find(number); w != nil && w.State == program.Starting {
		p.step(program.Did{Worker: number, Event: life.NeverReady{Err: errors.New(reason)}})
	} else {
		p.step(program.Replace{Worker: number, Reason: reason})
	}
	return true
}

package control

import (
	"time"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// The outcomes of a command that has no verdict.
const (
	Taken  program.Outcome = "accepted" // the command did not wait, or there was nothing to wait for
	Failed program.Outcome = "error"    // CommandReport.Code says why
)

// The codes of errors that no API answers with.
const (
	NoAnswer    Code = "no_answer" // no supervisord answers, or the connection broke
	Interrupted Code = "interrupted"
	OtherError  Code = "failed"
)

// CommandReport is the document that a command that changes something prints with --json, also after a failure.
type CommandReport struct {
	Command  string              `json:"command"`
	Host     string              `json:"host"`
	Outcome  program.Outcome     `json:"outcome"`         // the worst of the programs', Taken or Failed
	Exit     int                 `json:"exit"`            // the exit status of the command
	Code     Code                `json:"code,omitempty"`  // of Failed
	Error    string              `json:"error,omitempty"` // what the command wrote to stderr
	Programs []ProgramReport     `json:"programs"`
	Tickets  []supervisor.Ticket `json:"tickets,omitempty"` // of Taken
}

// ProgramReport says how a command went for one program. Unknown values are null.
type ProgramReport struct {
	ProgramVerdict
	TookMS  *float64         `json:"took_ms"`
	Drained bool             `json:"drained"` // the generation that had to go is gone: nothing below changes any more
	DrainMS *float64         `json:"drain_ms"`
	Reset   int              `json:"reset"` // connections that waited when no worker of the old generation was left
	Killed  int              `json:"killed"`
	Failure *program.Failure `json:"failure,omitempty"`
}

// NewReport returns the report of a command that has waited.
func NewReport(command string, v *Verdict) *CommandReport {
	r := &CommandReport{Command: command, Outcome: v.Outcome, Programs: []ProgramReport{}}
	for _, p := range v.Programs {
		r.Programs = append(r.Programs, newProgramReport(p))
	}
	return r
}

func newProgramReport(v ProgramVerdict) ProgramReport {
	p := ProgramReport{ProgramVerdict: v}
	if s := v.Stop; s != nil {
		p.Killed, p.Drained = s.Killed, !s.Ended.IsZero()
		if p.Drained {
			p.TookMS = milliseconds(s.Ended.Sub(s.Began))
		}
	}
	if r := v.Reload; r != nil {
		p.Killed, p.Reset, p.Failure, p.Drained = r.Killed, r.Reset, r.Failure, !r.Ended.IsZero()
		if !r.Decided.IsZero() {
			p.TookMS = milliseconds(r.Took)
		}
		if p.Drained {
			p.DrainMS = milliseconds(r.Drain)
		}
	}
	return p
}

func milliseconds(d time.Duration) *float64 { return new(float64(d.Microseconds()) / 1000) }

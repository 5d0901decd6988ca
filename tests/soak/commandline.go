package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/supervisor/program"
)

// commandTimeout is when a command of the command line has to have ended: its own time limit and some more.
const commandTimeout = 5 * time.Minute

// tool runs the command line, and returns what it wrote and its exit status.
func (s *soak) tool(args ...string) (stdout []byte, said string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, binary, args...)
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	err := command.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		s.violated("cannot run supervisord %q: %v", args, err)
	}
	if ctx.Err() != nil {
		s.violated("supervisord %q has not ended after %v: %s", args, commandTimeout, complaints.String())
	}
	return out.Bytes(), complaints.String(), command.ProcessState.ExitCode()
}

// ask runs a command that reports in JSON. While the supervisord that is asked dies or begins, a command may say so;
// then ask runs it again. Every other answer must be exactly one document that agrees with the exit status.
func (s *soak) ask(args ...string) control.CommandReport {
	args = append(args, "--json")
	for {
		died := s.deaths.mark()
		out, said, code := s.tool(args...)
		var r control.CommandReport
		d := json.NewDecoder(bytes.NewReader(out))
		if err := d.Decode(&r); err != nil {
			s.violated("supervisord %q printed no document: %v\n%s%s", args, err, out, said)
			return r
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			s.violated("supervisord %q printed more than one document:\n%s", args, out)
		}
		if r.Exit != code {
			s.violated("supervisord %q exits with %d and its document says %d", args, code, r.Exit)
		}
		s.journal.line("answer: supervisord %q: %s, exit status %d %s", args, r.Outcome, code, r.Error)
		unanswered := r.Code == control.NoAnswer || r.Outcome == control.Unknown && len(r.Programs) == 0
		if !unanswered || s.over() {
			s.compare(args, &r)
			return r
		}
		if !died() {
			s.violated("supervisord %q: no answer from a supervisord that runs: %s", args, r.Error)
			return r
		}
		s.journal.event("command asked again after a death", "%q", args)
		time.Sleep(300 * time.Millisecond)
	}
}

// compare checks what a command was told with what supervisord itself records.
func (s *soak) compare(args []string, r *control.CommandReport) {
	for _, p := range r.Programs {
		switch p.Outcome {
		case control.Unknown, control.TimedOut:
			s.violated("supervisord %q: generation %d of %s: %s: %s", args, p.Generation, p.Program, p.Outcome, p.Reason)
		case control.RolledBack, control.Killed:
			s.ledger.told(key{p.Program, p.Generation}, program.Serves, fmt.Sprint(args))
		default:
			if p.From == 0 && !p.Outcome.Open() {
				s.ledger.told(key{p.Program, p.Generation}, p.Outcome, fmt.Sprint(args))
			}
		}
		if p.Outcome == control.Killed || p.Killed > 0 {
			s.journal.event("reload whose old workers had to be killed", "%s generation %d: %d", p.Program, p.Generation,
				p.Killed)
		}
	}
}

// about returns the answer about a program.
func about(r *control.CommandReport, name string) (control.ProgramReport, bool) {
	for _, p := range r.Programs {
		if p.Program == name {
			return p, true
		}
	}
	return control.ProgramReport{}, false
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Run starts a helper command (a preflight, a probe), waits for it, and kills its process group when ctx ends. The command gets no notify
// socket, and Ready is ignored. Its stderr is read even where it is inherited, and passed on. The error says what went wrong, with the
// last lines of stderr; errors.As finds the *RunError in it, and errors.Is the cause of ctx's end.
func (l *Launcher) Run(ctx context.Context, spec Spec) error {
	if err := context.Cause(ctx); err != nil {
		return &RunError{Command: spec.Command, Cause: err}
	}
	ended := make(chan Exited, 1)
	w := newWorker(l, spec, func(e Event) {
		if e, ok := e.(Exited); ok {
			ended <- e
		}
	})
	w.helper = true
	l.workers.Go(w.live)
	select {
	case e := <-ended:
		return runError(spec, e, nil)
	case <-ctx.Done():
		w.Signal(syscall.SIGKILL, true)
		return runError(spec, <-ended, context.Cause(ctx))
	}
}

// RunError is why a command of Run failed.
type RunError struct {
	Command []string
	Exited  Exited // zero: the command was not started
	Cause   error  // why the command was killed; nil: it was not
}

func runError(spec Spec, e Exited, cause error) error {
	if cause == nil && e.Step == "" && e.Known && e.Status.Exited() && e.Status.ExitStatus() == 0 {
		return nil
	}
	return &RunError{Command: spec.Command, Exited: e, Cause: cause}
}

func (e *RunError) Error() string {
	if len(e.Exited.Tail) == 0 {
		return e.Reason()
	}
	return e.Reason() + "; it said:\n\t" + strings.Join(e.Exited.Tail, "\n\t")
}

// Reason is the error without the lines that the command wrote.
func (e *RunError) Reason() string {
	command := strings.Join(e.Command, " ")
	switch {
	case e.Cause != nil:
		return fmt.Sprintf("%s: stopped: %v", command, e.Cause)
	case e.Exited.Step != "":
		return e.Exited.String()
	}
	return fmt.Sprintf("%s: %s", command, e.Exited)
}

func (e *RunError) Unwrap() []error {
	var list []error
	for _, err := range []error{e.Cause, e.Exited.Err} {
		if err != nil {
			list = append(list, err)
		}
	}
	return list
}

// OneLine is the text of an error of a probe in one line: of a command with the last line that it wrote.
func OneLine(err error) string {
	e, is := errors.AsType[*RunError](err)
	switch {
	case !is:
		text, _, _ := strings.Cut(err.Error(), "\n")
		return text
	case len(e.Exited.Tail) == 0:
		return e.Reason()
	}
	return fmt.Sprintf("%s; its last line: %s", e.Reason(), e.Exited.Tail[len(e.Exited.Tail)-1])
}

package spawn

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// aboutToExec is the byte with which the new process reports that all steps but the exec were taken.
const aboutToExec = '+'

// A report is what the child writes until its exec or its end, which close it:
//
//	'*'             with the filter's descriptor (SCM_RIGHTS), if there is a filter
//	'+'             all steps were taken, and the exec comes
//	message         8 bytes: step, hint, index (2), errno (4); of the step that has failed
//
// '+' alone: the command runs. Nothing, or '*' alone: the process was killed before.
//
// ParseReport reads a whole report of a process that was to become c. The command runs only if the report says that the
// exec was tried, and nothing after that. If it says neither this nor what failed, the process was killed.
func ParseReport(report []byte, c *Execution) (runs bool, failure *StepError) {
	if len(report) > 0 && report[0] == withFilter {
		report = report[1:]
	}
	if len(report) > 0 && report[0] == aboutToExec {
		if report = report[1:]; len(report) == 0 {
			return true, nil
		}
	}
	var m message
	if len(report) == int(messageSize) && int(report[0]) < len(codes) && codes[report[0]].step != "" {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&m)), messageSize), report)
		return false, failed(m.Step, m.explain(c))
	}
	return false, nil
}

// explain says what failed, in which call of a step.
func (m message) explain(c *Execution) error {
	errno := syscall.Errno(m.Errno)
	switch m.Step {
	case codeSignals:
		return fmt.Errorf("signal %d: %w", m.Index, errno)
	case codeLimits:
		return m.explainLimit(c, errno)
	case codeNice:
		return fmt.Errorf("%d: %w", value(c.Limits.Nice), errno)
	case codeOOM:
		return fmt.Errorf("%d: %w", value(c.Limits.OOMScoreAdj), errno)
	case codeGroups, codeGroup, codeUser:
		return m.explainCredential(c, errno)
	case codeAmbient:
		return m.explainCapability(c, errno)
	case codeDirectory:
		return fmt.Errorf("%s: %w", c.Directory, errno)
	case codeExec:
		return m.explainExec(c, errno)
	}
	return errno
}

func (m message) explainLimit(c *Execution, errno error) error {
	names := c.Limits.names()
	if int(m.Index) >= len(names) {
		return errno
	}
	name := names[m.Index]
	want := limitText(c.Limits.RLimits[name])
	var have unix.Rlimit
	if n, known := RLimit(name); m.Hint == hintHard && known && unix.Getrlimit(n, &have) == nil {
		return fmt.Errorf("%s to %s, which is above the hard limit %s: %w", name, want, limitText(have.Max), errno)
	}
	return fmt.Errorf("%s to %s: %w", name, want, errno)
}

func (m message) explainCredential(c *Execution, errno error) error {
	if c.Credential == nil {
		return errno
	}
	switch m.Step {
	case codeGroups:
		return withRemedy(c.Credential.Groups, errno)
	case codeGroup:
		return withRemedy(c.Credential.GID, errno)
	}
	return withRemedy(c.Credential.UID, errno)
}

func (m message) explainCapability(c *Execution, errno error) error {
	names := c.Limits.AmbientCapabilities
	switch {
	case int(m.Index) >= len(names):
		return errno
	case m.Hint == hintLacks:
		return fmt.Errorf("%s: %w (the supervisor does not have it)", names[m.Index], errno)
	}
	return fmt.Errorf("%s: %w", names[m.Index], errno)
}

// explainExec adds what the errno of an exec leaves out.
func (m message) explainExec(c *Execution, errno error) error {
	if len(c.Command) == 0 {
		return errno
	}
	files, path := c.candidates()
	switch {
	case m.Hint == hintNotFound && errors.Is(errno, unix.ENOENT):
		return fmt.Errorf("%s: not found in PATH %q: %w", c.Command[0], path, errno)
	case m.Hint == hintNotFound:
		return fmt.Errorf("%s: found in PATH %q but may not be executed: %w", c.Command[0], path, errno)
	case int(m.Index) >= len(files):
		return fmt.Errorf("%s: %w", c.Command[0], errno)
	case m.Hint == hintLoader:
		return fmt.Errorf("%s: its interpreter (the #! line, or the dynamic loader): %w", files[m.Index], errno)
	case errors.Is(errno, unix.ENOEXEC):
		return fmt.Errorf("%s: %w (a script needs a #! line)", files[m.Index], errno)
	}
	return fmt.Errorf("%s: %w", files[m.Index], errno)
}

// The steps to a running command that its parent takes, and the last one of the new process.
const (
	StepSockets = "sockets"
	StepNotify  = "notify"
	StepOutput  = "output"
	StepWatch   = "watch"
	StepStart   = "start" // the process ended before the exec and reported nothing
	StepAdopt   = "adopt"
	StepExec    = "exec"
)

// codes are the steps of the new process by their number in a message, and what each does, after "cannot".
var codes = [...]struct{ step, action string }{
	codeFork:            {"fork", "start a process:"},
	codeDescriptors:     {"descriptors", "set up descriptors:"},
	codeSignals:         {"signals", "reset signals:"},
	codeCapabilities:    {"capabilities", "drop capabilities:"},
	codeFilter:          {"bind", "answer bind(2) of the command:"},
	codeLimits:          {"limits", "set limit"},
	codeNice:            {"nice", "set nice"},
	codeOOM:             {"oom_score_adj", "set oom_score_adj"},
	codeUmask:           {"umask", "set umask"},
	codeGroups:          {"groups", "set groups"},
	codeGroup:           {"group", "set group"},
	codeUser:            {"user", "set user"},
	codeAmbient:         {"ambient_capabilities", "set ambient capability"},
	codeNoNewPrivileges: {"no_new_privileges", "set no_new_privileges:"},
	codeDirectory:       {"directory", "enter directory"},
	codeExec:            {StepExec, "exec"},
}

// actions say what a step of the parent does, after "cannot".
var actions = map[string]string{
	StepSockets: "pass", StepNotify: "start:", StepOutput: "set up", StepWatch: "watch the process:", StepAdopt: "adopt",
}

// They stay what they are: one supervisord may read what a process reports that another version started.
const (
	codeFork = iota + 1
	codeDescriptors
	codeSignals
	codeCapabilities
	codeLimits
	codeNice
	codeOOM
	codeUmask
	codeGroups
	codeGroup
	codeUser
	codeAmbient
	codeNoNewPrivileges
	codeDirectory
	codeExec
	codeFilter
)

// Describe says which step failed and why: "cannot exec ./web: no such file or directory".
func Describe(step string, err error) string {
	action := actions[step]
	for _, c := range codes {
		if c.step == step {
			action = c.action
		}
	}
	if action == "" { // err is a whole sentence
		return err.Error()
	}
	return "cannot " + action + " " + err.Error()
}

// StepError is a step to a running command that failed.
type StepError struct {
	Step  string
	Text  string
	Errno syscall.Errno
}

// Failed returns a StepError for err.
func Failed(step string, err error) *StepError {
	e := &StepError{Step: step, Text: err.Error()}
	errors.As(err, &e.Errno)
	return e
}

// failed returns a StepError for a step of the new process, which that reports or its parent has found out before.
func failed(code uint8, err error) *StepError { return Failed(codes[code].step, err) }

// Error returns Text, which does not name the step.
func (e *StepError) Error() string { return e.Text }

// Unwrap returns the Errno, or nil.
func (e *StepError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

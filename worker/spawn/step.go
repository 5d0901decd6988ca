package spawn

import (
	"errors"
	"syscall"
)

// The steps to a running command that its parent takes.
const (
	StepSockets = "sockets"
	StepNotify  = "notify"
	StepOutput  = "output"
	stepFork    = "fork"
	StepWatch   = "watch"
	StepStart   = "start" // the process ended before the exec and reported nothing
	StepAdopt   = "adopt"
	StepExec    = "exec"
)

// The steps that the new process takes, in their order; the last one is StepExec.
const (
	stepDescriptors     = "descriptors"
	stepSignals         = "signals"
	stepCapabilities    = "capabilities"
	stepFilter          = "bind"
	stepLimits          = "limits"
	stepNice            = "nice"
	stepOOM             = "oom_score_adj"
	stepUmask           = "umask"
	stepGroups          = "groups"
	stepGroup           = "group"
	stepUser            = "user"
	stepAmbient         = "ambient_capabilities"
	stepNoNewPrivileges = "no_new_privileges"
	stepDirectory       = "directory"
)

// codes are the steps by their number in a message of the new process.
var codes = [...]string{
	codeFork: stepFork, codeDescriptors: stepDescriptors, codeSignals: stepSignals, codeCapabilities: stepCapabilities,
	codeLimits: stepLimits, codeNice: stepNice, codeOOM: stepOOM, codeUmask: stepUmask, codeGroups: stepGroups,
	codeGroup: stepGroup,
	codeUser:  stepUser, codeFilter: stepFilter, codeAmbient: stepAmbient, codeNoNewPrivileges: stepNoNewPrivileges,
	codeDirectory: stepDirectory, codeExec: StepExec,
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

// actions say what a step does, after "cannot".
var actions = map[string]string{
	StepSockets:         "pass",
	StepNotify:          "start:",
	StepOutput:          "set up",
	stepFork:            "start a process:",
	StepWatch:           "watch the process:",
	StepAdopt:           "adopt",
	StepExec:            "exec",
	stepDescriptors:     "set up descriptors:",
	stepSignals:         "reset signals:",
	stepCapabilities:    "drop capabilities:",
	stepFilter:          "answer bind(2) of the command:",
	stepLimits:          "set limit",
	stepNice:            "set nice",
	stepOOM:             "set oom_score_adj",
	stepUmask:           "set umask",
	stepGroups:          "set groups",
	stepGroup:           "set group",
	stepUser:            "set user",
	stepAmbient:         "set ambient capability",
	stepNoNewPrivileges: "set no_new_privileges:",
	stepDirectory:       "enter directory",
}

// Describe says which step failed and why: "cannot exec ./web: no such file or directory".
func Describe(step string, err error) string {
	action, known := actions[step]
	if !known { // err is a whole sentence
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

// Error returns Text, which does not name the step.
func (e *StepError) Error() string { return e.Text }

// Unwrap returns the Errno, or nil.
func (e *StepError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

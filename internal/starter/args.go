// Package starter is start_server: its command line, made a configuration of supervisord's; its log lines; and the two commands
// with which a script talks to one that runs. What it follows is Server::Starter 0.35.
package starter

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is what a flag takes.
type Kind int

// The kinds of flags.
const (
	Text Kind = iota
	List      // text, any number of times
	Number
	Switch // nothing
)

// Flag is one flag of the command line.
type Flag struct {
	Name, Usage string
	Kind        Kind
	Ours        bool // the reference does not have it
}

// Flags lists every flag. `word` in Usage names what the flag takes.
func Flags() []Flag {
	return []Flag{
		{Name: "port", Kind: List, Usage: "listen on `[HOST:]PORT`; uPORT is UDP, PORT=FD puts the socket at that descriptor of the worker"},
		{Name: "path", Kind: List, Usage: "listen on a unix socket at `PATH`"},
		{Name: "dir", Usage: "run the worker in this `DIRECTORY`"},
		{Name: "interval", Kind: Number, Usage: "a worker alive after so many `SECONDS` is ready; one that failed is tried again after as many (default 1)"},
		{Name: "signal-on-hup", Usage: "the `SIGNAL` for old workers when new ones are ready (default TERM)"},
		{Name: "signal-on-term", Usage: "the `SIGNAL` for all workers when start_server is told to stop (default TERM)"},
		{Name: "backlog", Kind: Number, Usage: "length of the `QUEUE` of connections not yet accepted (default: the kernel's limit)"},
		{Name: "envdir", Usage: "a `DIRECTORY` with one file for each variable, read for every generation"},
		{Name: "enable-auto-restart", Kind: Switch, Usage: "replace the workers every --auto-restart-interval"},
		{Name: "auto-restart-interval", Kind: Number, Usage: "how many `SECONDS` that is (default 360)"},
		{Name: "kill-old-delay", Kind: Number, Usage: "old workers go so many `SECONDS` after new ones are ready (default 0; 5 with --enable-auto-restart)"},
		{Name: "pid-file", Usage: "write the process ID to this `FILE`, and lock it"},
		{Name: "status-file", Usage: "write GENERATION:PID of every worker to this `FILE`"},
		{Name: "log-file", Usage: "append what start_server and the workers write to this `FILE`; '| COMMAND' feeds it to a command"},
		{Name: "daemonize", Kind: Switch, Usage: "go on in the background, and return when the first worker is ready, or has failed"},
		{Name: "restart", Kind: Switch, Usage: "send HUP to the start_server of --pid-file, and wait until all in --status-file are new"},
		{Name: "stop", Kind: Switch, Usage: "send TERM to the start_server of --pid-file, and wait until it has ended"},
		{Name: "help", Kind: Switch, Usage: "print this help"},
		{Name: "version", Kind: Switch, Usage: "print the version of Server::Starter that this follows"},
		{Name: "timeout", Ours: true, Usage: "how long --restart and --stop wait; 0: for ever (`DURATION`, default 5m)"},
		{Name: "stop-timeout", Ours: true, Usage: "KILL a worker that has not gone this `DURATION` after it was told to (default: never)"},
		{Name: "ready", Ours: true, Usage: "how a worker is found ready: `METHOD` is notify, accept, http=URL, tcp=HOST:PORT or exec=COMMAND"},
		{Name: "set", Kind: List, Ours: true, Usage: "another key of [program.NAME], as `KEY=VALUE`: reload.preflight='[\"./web\", \"-t\"]'"},
	}
}

// ErrUsage is wrapped by what is wrong with the command line's words.
var ErrUsage = errors.New("see --help")

// Args takes a command line apart as Getopt::Long(3pm) does, and writes it down in the one way --name=value, so that every
// parser reads it alike: the flags, "--", and the command of the worker, if there is one.
//
// A name may be cut short as long as it is only one flag's, its letters' size does not matter, and one dash will do. Flags end
// at "--" or at the first word that is none; the worker's own flags need no "--". But where a flag of start_server stands
// behind the command, which the reference would take for itself, the line is refused: it would mean something else.
func Args(words []string) ([]string, error) {
	flags, rest, err := flagsFirst(words)
	if err != nil {
		return nil, err
	}
	command, err := commandOf(rest)
	if err != nil || len(command) == 0 {
		return flags, err
	}
	return append(append(flags, "--"), command...), nil
}

// flagsFirst reads flags up to the first word that is none. A rest that began with "--" still does.
func flagsFirst(words []string) (flags, rest []string, err error) {
	for len(words) > 0 && words[0] != "--" && dashed(words[0]) {
		f, value, used, err := one(words)
		if err != nil {
			return nil, nil, err
		}
		if f.Kind == Switch {
			flags = append(flags, "--"+f.Name)
		} else {
			flags = append(flags, "--"+f.Name+"="+value)
		}
		words = words[used:]
	}
	return flags, words, nil
}

func dashed(word string) bool { return len(word) > 1 && word[0] == '-' }

// one reads the flag at the beginning of words, and says how many of them it took.
func one(words []string) (f Flag, value string, used int, err error) {
	name, value, has := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(words[0], "-"), "-"), "=")
	if f, err = find(name); err != nil {
		return f, "", 0, err
	}
	used = 1
	switch {
	case f.Kind == Switch && has:
		return f, "", 0, fmt.Errorf("option %s does not take an argument: %w", f.Name, ErrUsage)
	case f.Kind == Switch:
		return f, "", 1, nil
	case !has && len(words) > 1:
		value, used = words[1], 2
	}
	if value == "" {
		return f, "", 0, fmt.Errorf("option %s requires an argument: %w", f.Name, ErrUsage)
	}
	if _, wrong := strconv.ParseInt(value, 10, 32); f.Kind == Number && wrong != nil {
		return f, "", 0, fmt.Errorf("value %q invalid for option %s (number expected): %w", value, f.Name, ErrUsage)
	}
	return f, value, used, nil
}

// find returns the flag that a name, perhaps cut short, means. A flag that the reference does not have makes no name ambiguous
// that is none there.
func find(name string) (Flag, error) {
	name = strings.ToLower(name)
	var found []Flag
	for _, f := range Flags() {
		if f.Name == name {
			return f, nil
		}
		if name != "" && strings.HasPrefix(f.Name, name) {
			found = append(found, f)
		}
	}
	if theirs := slices.DeleteFunc(slices.Clone(found), func(f Flag) bool { return f.Ours }); len(theirs) > 0 {
		found = theirs
	}
	switch len(found) {
	case 0:
		return Flag{}, fmt.Errorf("unknown option: %s: %w", name, ErrUsage)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, f := range found {
		names = append(names, f.Name)
	}
	return Flag{}, fmt.Errorf("option %s is ambiguous (%s): %w", name, strings.Join(names, ", "), ErrUsage)
}

// commandOf is the command of the worker. The reference looks for its flags behind it too, as far as a "--", which it takes out.
func commandOf(words []string) ([]string, error) {
	if len(words) > 0 && words[0] == "--" {
		return words[1:], nil
	}
	for i, word := range words {
		if word == "--" {
			return append(slices.Clone(words[:i]), words[i+1:]...), nil
		}
		if !dashed(word) {
			continue
		}
		name, _, _ := strings.Cut(word, "=")
		if slices.ContainsFunc(Flags(), func(f Flag) bool { return !f.Ours && name == "--"+f.Name }) {
			return nil, fmt.Errorf("%s stands behind the command %s: write it before that if it is for start_server, "+
				"or -- before the command if it is the worker's: %w", word, words[0], ErrUsage)
		}
		break // nobody writes this for start_server there, so the rest is the worker's
	}
	return words, nil
}

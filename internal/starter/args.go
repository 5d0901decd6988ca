// Package starter translates a command line of start_server to a configuration, for cmd/start_server and for
// `supervisord convert`. The reference is Perl's Server::Starter 0.35.
package starter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.org/supervisord/internal/getopt"
)

// Flags lists the options of the command line.
func Flags() []getopt.Flag {
	const text, list, number, flag = getopt.Text, getopt.List, getopt.Number, getopt.Switch
	return []getopt.Flag{
		{Name: "port", Kind: list, Usage: "listen on `[HOST:]PORT`; uPORT is UDP, PORT=FD puts the socket at that " +
			"descriptor of the worker"},
		{Name: "path", Kind: list, Usage: "listen on a unix socket at `PATH`"},
		{Name: "dir", Kind: text, Usage: "run the worker in this `DIRECTORY`"},
		{Name: "interval", Kind: number,
			Usage: "a worker alive after this many `SECONDS` is ready; a failed one is retried after as many (default 1)"},
		{Name: "signal-on-hup", Kind: text, Usage: "the `SIGNAL` for old workers once new ones are ready (default TERM)"},
		{Name: "signal-on-term", Kind: text,
			Usage: "the `SIGNAL` for all workers when start_server is told to stop (default TERM)"},
		{Name: "backlog", Kind: number, Usage: "length of the accept `QUEUE` (default: the kernel's limit)"},
		{Name: "envdir", Kind: text, Usage: "a `DIRECTORY` with one file per variable, read for every generation"},
		{Name: "enable-auto-restart", Kind: flag, Usage: "replace the workers every --auto-restart-interval"},
		{Name: "auto-restart-interval", Kind: number, Usage: "that interval in `SECONDS` (default 360)"},
		{Name: "kill-old-delay", Kind: number,
			Usage: "stop old workers this many `SECONDS` after new ones are ready (default 0; 5 with --enable-auto-restart)"},
		{Name: "pid-file", Kind: text, Usage: "write the process ID to this `FILE`, and lock it"},
		{Name: "status-file", Kind: text, Usage: "write GENERATION:PID of every worker to this `FILE`"},
		{Name: "log-file", Kind: text,
			Usage: "append the output of start_server and the workers to this `FILE`; '| COMMAND' pipes it to a command"},
		{Name: "daemonize", Kind: flag, Usage: "run in the background; return when the first worker is ready or has failed"},
		{Name: "restart", Kind: flag, Usage: "send HUP to the start_server of --pid-file; wait until --status-file lists " +
			"only new workers"},
		{Name: "stop", Kind: flag, Usage: "send TERM to the start_server of --pid-file; wait until it has exited"},
		{Name: "help", Kind: flag, Usage: "print this help"},
		{Name: "version", Kind: flag, Usage: "print the version of Server::Starter that this follows"},
		{Name: "timeout", Kind: text, Extra: true,
			Usage: "how long --restart and --stop wait; 0 waits forever (`DURATION`, default 5m)"},
		{Name: "stop-timeout", Kind: text, Extra: true,
			Usage: "KILL a worker that is still running this `DURATION` after its stop signal (default: never)"},
		{Name: "ready", Kind: text, Extra: true,
			Usage: "how a worker is found ready: `METHOD` is notify, accept, http=URL, tcp=HOST:PORT or exec=COMMAND"},
		{Name: "handover", Kind: text, Extra: true,
			Usage: "`HOW` one generation takes over: share (default: all workers accept from one socket), or steer (new " +
				"connections go to new workers only)"},
		{Name: "set", Kind: list, Extra: true,
			Usage: "set another key of [program.NAME], `KEY=VALUE`: reload.preflight='[\"./web\", \"-t\"]'"},
	}
}

// ErrUsage is wrapped by the errors of a command line that cannot be parsed.
var ErrUsage = errors.New("see --help")

// ParsedLine is a command line, parsed.
type ParsedLine struct {
	Given   []getopt.Given
	Command []string // the worker's; nil: there is none
	First   int      // the index of the command's first word
}

// Parse reads the words of a command line as Getopt::Long(3pm) does: names may be abbreviated, case does not matter,
// and one dash is enough. Options end at "--" or at the first word that is not one, so the worker's own options need no
// "--". An option of start_server after the command, which the reference would take for itself, is an error: the line
// would mean something else.
//
// A mistake is a *getopt.Mistake in an error that wraps ErrUsage.
func Parse(words []string) (ParsedLine, error) {
	parsed, mistakes := getopt.Syntax{Options: Flags(), OneDash: true}.Parse(words)
	if len(mistakes) > 0 {
		return ParsedLine{}, fmt.Errorf("%w: %w", mistakes[0], ErrUsage)
	}
	line := ParsedLine{Given: parsed.Given}
	if len(parsed.Rest) == 0 {
		return line, nil
	}
	line.First = parsed.Rest[0]
	line.Command = slices.Clone(words[line.First:])
	if parsed.Dashes {
		return line, nil
	}
	return line, line.findMisplaced()
}

// findMisplaced looks for options of start_server after the command. The reference looks for them up to a "--", which
// it removes.
func (l *ParsedLine) findMisplaced() error {
	for i, word := range l.Command {
		if word == "--" {
			l.Command = slices.Delete(l.Command, i, i+1)
			return nil
		}
		if len(word) < 2 || word[0] != '-' {
			continue
		}
		name, _, _ := strings.Cut(word, "=")
		if slices.ContainsFunc(Flags(), func(f getopt.Flag) bool { return !f.Extra && name == "--"+f.Name }) {
			return fmt.Errorf("%w: %w", &getopt.Mistake{Word: l.First + i,
				What: fmt.Sprintf("%s comes after the command %s: move it before "+
					"the command if it is for start_server, or write -- before the command if it is for the worker", word,
					l.Command[0])}, ErrUsage)
		}
		return nil // the reference has no such option, so the rest belongs to the worker
	}
	return nil
}

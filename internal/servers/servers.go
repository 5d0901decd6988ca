// Package servers knows third-party servers by their commands: where such a command listens, with which signal the
// server stops gracefully, how it says that it is ready, and what must not be shared with another generation, such as a
// pid file. A command stays as it is: the server opens its ports as always, and gets its listeners. Its table
// (table.go) agrees with examples/servers, which a test compares, and with docs/servers.md.
//
//	c := servers.Read([]string{"bundle", "exec", "puma", "-p", "3000"}, servers.Surroundings{})
//	c.Server.Name, c.Listen[0].Address // "Puma", "0.0.0.0:3000"
package servers

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Product is one kind of server.
type Product struct {
	Name   string
	Page   string // what docs/servers.md says about it, such as "docs/servers.md#puma"
	Ready  string // the readiness protocol: "notify" if it says READY=1 by itself, otherwise "accept"
	Signal string // with which it stops gracefully; "": TERM, or whatever else it is given
	Group  bool   // the stop signal must reach every process, as the first one does not pass it on
	Single string // why two of it cannot run at the same time; "": they can
	Untold string // why no variable may tell it about its sockets: dialect = []; "": one may
	// what else is needed so that no request on a keep-alive connection is lost, as instructions; "": nothing
	Advice string

	command command
}

// Listen is a listener of a program.
type Listen struct {
	Name, Address string
	Binds         string // what the program opens, if that is another address
	Any           bool   // nobody says a host: it may be every address, or only this machine's
}

// Recognize finds the server that a command starts: by its name, behind wrappers such as `bundle exec`, `env A=1` or
// `python -m`, and within `sh -c` if a name can be seen there.
func Recognize(argv []string) (*Product, bool) {
	s, _ := find(argv)
	return s, s != nil
}

// find returns the server of a command and the index of the word that names it; nil if none is known. The index is -1
// in a script.
func find(argv []string) (*Product, int) {
	if script := scriptOf(argv); script != nil {
		s, _ := find(script)
		return s, -1
	}
	at := unwrap(argv)
	if at >= len(argv) {
		return nil, 0
	}
	for _, s := range table() {
		if s.command.matches(argv[at:]) {
			return s, at
		}
	}
	return nil, 0
}

var shells = []string{"sh", "bash", "dash", "zsh", "ash"}

// inlined returns the script of `sh -c SCRIPT`; "": the command is another.
func inlined(argv []string) string {
	at := unwrap(argv)
	if at >= len(argv) || !slices.Contains(shells, path.Base(argv[at])) {
		return ""
	}
	for i, word := range argv[at+1:] {
		if strings.HasPrefix(word, "-") && strings.HasSuffix(word, "c") && at+i+2 < len(argv) {
			return argv[at+i+2]
		}
	}
	return ""
}

// scriptOf returns the words of the last command of `sh -c SCRIPT`, without quotes; nil: the command is another. It is
// good enough to see a name and options.
func scriptOf(argv []string) (last []string) {
	script := inlined(argv)
	if script == "" {
		return nil
	}
	var words []string
	quote, word, begun := rune(0), "", false
	for _, c := range script + ";" {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word += string(c)
		case c == '"' || c == '\'':
			quote, begun = c, true
		case strings.ContainsRune(" \t\n;&|", c):
			if word != "" || begun {
				words = append(words, word)
			}
			if word, begun = "", false; !strings.ContainsRune(" \t", c) && words != nil { // a command ends
				last, words = words, nil
			}
		default:
			word += string(c)
		}
	}
	return last
}

// wrapper reports whether a program starts another: with so many words of its own besides options, or only after a word
// ("bundle exec").
func wrapper(name string) (own int, word string, ok bool) {
	switch name {
	case "exec", "env", "nohup", "dumb-init", "tini", "catatonit", "stdbuf", "nice", "ionice", "setsid", "npx",
		"ddtrace-run", "opentelemetry-instrument":
		return 0, "", true
	case "gosu", "su-exec", "setuidgid":
		return 1, "", true
	case "bundle", "bundler", "carton", "rbenv", "pnpm":
		return 1, "exec", true
	case "poetry", "pipenv", "pdm", "uv", "hatch":
		return 1, "run", true
	case "newrelic-admin":
		return 1, "run-program", true
	}
	return 0, "", false
}

// unwrap returns the index of the word that names the program itself.
func unwrap(argv []string) int {
	at := 0
	for at < len(argv) {
		name := path.Base(argv[at])
		own, word, wraps := wrapper(name)
		switch {
		case strings.Contains(argv[at], "=") && !strings.Contains(name, "/"): // A=1 of env
			at++
		case wraps && word != "" && (at+1 >= len(argv) || argv[at+1] != word):
			return at
		case wraps:
			at = skipOptions(argv, at+1+own)
		case interpreter(name):
			return interpreted(argv, at)
		default:
			return at
		}
	}
	return at
}

// skipOptions returns the index of the first word from at that is not an option of a wrapper.
func skipOptions(argv []string, at int) int {
	for at < len(argv) && strings.HasPrefix(argv[at], "-") {
		number := at+1 < len(argv) && len(argv[at]) == 2 && isNumber(argv[at+1]) // nice -n 10
		if at++; number {
			at++
		}
	}
	return at
}

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

func interpreter(name string) bool {
	for _, known := range []string{"python", "ruby", "perl"} {
		if rest, ok := strings.CutPrefix(name, known); ok && strings.Trim(rest, "0123456789.") == "" {
			return true
		}
	}
	return false
}

// interpreted returns the index of the module or script that an interpreter runs, or at if it runs none.
func interpreted(argv []string, at int) int {
	for i := at + 1; i < len(argv); i++ {
		switch {
		case argv[i] == "-m" && i+1 < len(argv):
			return i + 1
		case argv[i] == "-c", argv[i] == "-e":
			return at
		case strings.HasPrefix(argv[i], "-"):
		default:
			return i
		}
	}
	return at
}

// ProgramOf returns the word of a command that names a program of the project itself, such as ./server or bin/web; ""
// if the command is a server, an interpreter or a wrapper, whose name says nothing about the project.
func ProgramOf(argv []string) string {
	at := unwrap(argv)
	if at >= len(argv) || at > 0 && !strings.Contains(argv[at], "/") || at > 0 && interpreter(path.Base(argv[at-1])) {
		return ""
	}
	name := path.Base(argv[at])
	_, _, wraps := wrapper(name)
	_, known := Recognize(argv)
	if known || wraps || interpreter(name) || Works(argv) || slices.Contains(generic, name) ||
		slices.Contains(shells, name) {
		return ""
	}
	return argv[at]
}

// generic are programs whose names say nothing about the project that they run.
var generic = strings.Fields("node nodejs java php deno bun dotnet npm yarn pnpm rake mix elixir go cargo mvn " +
	"gradle gradlew make")

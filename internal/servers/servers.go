// Package servers knows third-party servers: how to recognize one by its command, and how supervisord runs it so that a reload loses no
// request. Its table (table.go) says the same as the configurations in examples/servers, which a test compares, and docs/servers.md.
//
//	s, ok := servers.Recognize([]string{"bundle", "exec", "puma", "-p", "3000"})
//	c := s.Adapt(argv, servers.World{})   // the same command, with an inherited socket
//	text := s.Lines("web", c.Listen)      // the rest of [program.web]
package servers

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config/document"
)

// Server is one kind of server.
type Server struct {
	Name    string
	Page    string // what docs/servers.md says about it, such as "docs/servers.md#puma"
	Example string // its file in examples/servers; "" if it cannot inherit a socket

	Settings []Setting                           // of [program.NAME]; they hold without a change of the server's own files or code
	Hooked   []Setting                           // instead, if the server is set up as in Example
	Listener []Setting                           // of each [[program.NAME.listen]]
	Manual   string                              // what must be changed in the server's own files or code before it can inherit a socket; "": nothing
	Variable func([]Listen) (name, value string) // of its environment, by which it finds its listeners; nil: it needs none
	Remedy   string                              // what else is needed so that no request is lost, as instructions; "": nothing

	command command
}

// Setting is a key of the configuration, such as "stop.signal", and its value in TOML.
type Setting struct{ Key, Value string }

// Inherits reports whether the server can take a socket from supervisord.
func (s *Server) Inherits() bool { return s.Example != "" }

// Listen is a listener of a program.
type Listen struct{ Name, Address string }

// Lines returns what [program.NAME] needs besides the command, in TOML: its keys, then its tables. Without a listener it writes one whose
// address is to be filled in.
func (s *Server) Lines(program string, listen []Listen) string {
	var b strings.Builder
	for _, set := range s.Settings {
		if !strings.Contains(set.Key, ".") {
			b.WriteString(set.Key + " = " + set.Value + "\n")
		}
	}
	if len(listen) == 0 {
		listen = []Listen{{"http", "HOST:PORT"}}
	}
	if s.Variable != nil {
		name, value := s.Variable(listen)
		b.WriteString("environment = { " + name + " = " + document.Quote(value) + " }\n")
	}
	if !document.Bare(program) {
		program = document.Quote(program)
	}
	for _, l := range listen {
		b.WriteString("[[program." + program + ".listen]]\n")
		b.WriteString("name = " + document.Quote(l.Name) + "\naddress = " + document.Quote(l.Address) + "\n")
		for _, set := range s.Listener {
			b.WriteString(set.Key + " = " + set.Value + "\n")
		}
	}
	for _, table := range []string{"ready", "stop"} {
		b.WriteString("[program." + program + "." + table + "]\n")
		for _, set := range s.Settings {
			if rest, ok := strings.CutPrefix(set.Key, table+"."); ok {
				b.WriteString(rest + " = " + set.Value + "\n")
			}
		}
	}
	return b.String()
}

// Recognize finds the server that a command starts: by its name, behind wrappers such as `bundle exec`, `env A=1` or `python -m`, and
// within `sh -c` if a name can be seen there.
func Recognize(argv []string) (*Server, bool) {
	s, _ := find(argv)
	return s, s != nil
}

// find returns the server of a command and the index of the word that names it; nil if none is known.
func find(argv []string) (*Server, int) {
	at := unwrap(argv)
	if at >= len(argv) {
		return nil, 0
	}
	if name := path.Base(argv[at]); slices.Contains(shells, name) {
		if script := scriptOf(argv[at+1:]); script != nil {
			s, _ := find(script)
			return s, -1
		}
	}
	for _, s := range table() {
		if s.command.matches(argv[at:]) {
			return s, at
		}
	}
	return nil, 0
}

var shells = []string{"sh", "bash", "dash", "zsh", "ash"}

// scriptOf returns the words of the last command in `sh -c SCRIPT`, without quotes. It is good enough to see a name.
func scriptOf(args []string) (last []string) {
	i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") && strings.HasSuffix(a, "c") })
	if i < 0 || i+1 >= len(args) {
		return nil
	}
	var words []string
	quote, word := rune(0), ""
	for _, c := range args[i+1] + ";" {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word += string(c)
		case c == '"' || c == '\'':
			quote = c
		case strings.ContainsRune(" \t\n;&|", c):
			if word != "" {
				words = append(words, word)
			}
			if word = ""; !strings.ContainsRune(" \t", c) && words != nil { // a command ends
				last, words = words, nil
			}
		default:
			word += string(c)
		}
	}
	return last
}

// wrapper reports whether a program starts another: with so many words of its own besides options, or only after a word ("bundle exec").
func wrapper(name string) (own int, word string, ok bool) {
	switch name {
	case "exec", "env", "nohup", "dumb-init", "tini", "catatonit", "stdbuf", "nice", "ionice", "setsid", "npx", "ddtrace-run", "opentelemetry-instrument":
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

// interpreted returns the index of the module or script that an interpreter runs, or at if that is not a known server's.
func interpreted(argv []string, at int) int {
	for i := at + 1; i < len(argv); i++ {
		switch {
		case argv[i] == "-m" && i+1 < len(argv):
			return i + 1
		case argv[i] == "-S", strings.HasPrefix(argv[i], "-"):
		default:
			return i
		}
	}
	return at
}

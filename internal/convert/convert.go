// Package convert says in supervisord's words what the configuration of another supervisor says: the command line of
// start_server or einhorn, the ini file of circus or of supervisor, a Procfile.
//
// Each source has a file of its own, which knows all keys of its documentation in one table. What they have to say goes through
// one writer (document.go), in the order of the source, so that all output looks alike and is accepted by package config. A key
// is converted, or a comment says where it stands, that there is nothing like it, and what to do instead: nothing is dropped.
// A source that its own supervisor would refuse is an error.
package convert

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"example.org/supervisord/internal/config"
)

// Kind is what a source is written for.
type Kind string

// The kinds.
const (
	StartServer Kind = "start_server"
	Circus      Kind = "circus"
	Supervisor  Kind = "supervisor"
	Einhorn     Kind = "einhorn"
	Procfile    Kind = "procfile"
)

// Kinds are all kinds, in the order of the documentation.
var Kinds = []Kind{StartServer, Circus, Supervisor, Einhorn, Procfile}

// Source is what is to be converted: the text of a file, or a command line.
type Source struct {
	Kind    Kind   // "": to be recognised
	Program string // for a command line: what to call the program; "": after its command
	Name    string // the file's name, as comments and errors name it
	Text    string
	Args    []string // a command line, word by word, instead of Name and Text
}

// World is what a source can refer to outside itself. Nothing in it is changed.
type World struct {
	Dir    string // absolute: where relative paths of the source begin
	Host   string // this machine's name
	Getenv func(name string) (string, bool)
	Glob   func(pattern string) ([]string, error) // sorted
	Read   func(path string) (string, error)
}

// Result is a configuration, with a count of what it says.
type Result struct {
	Kind     Kind
	Text     string
	Programs int // that will run
	Off      int // that are written with a # before each line, because their source would not start them
	Lacking  int // settings without an equivalent
}

// maxText bounds a source and what comes out, in bytes: package config reads no more.
const maxText = 1 << 20

// Convert converts a source. A source that is malformed is an *config.Error with all that is wrong and where.
func Convert(s Source, w World) (Result, error) {
	if err := s.readable(); err != nil {
		return Result{}, err
	}
	if s.Kind == "" {
		var err error
		if s.Kind, err = s.recognise(); err != nil {
			return Result{}, err
		}
	}
	d := newDocument(s, w)
	switch s.Kind {
	case StartServer:
		d.startServer(s)
	case Einhorn:
		d.einhorn(s)
	case Circus:
		d.circus(s)
	case Supervisor:
		d.supervisorINI(s)
	case Procfile:
		d.procfile(s)
	default:
		return Result{}, malformed(place{}, "", fmt.Sprintf("%q is not known", s.Kind), "known are "+kindNames())
	}
	return d.result()
}

func kindNames() string {
	names := make([]string, len(Kinds))
	for i, k := range Kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

// readable reports what is no text.
func (s Source) readable() error {
	for i, word := range s.Args {
		if err := checkText(place{file: fmt.Sprintf("argument %d", i+1)}, word); err != nil {
			return err
		}
	}
	return checkText(place{file: s.Name}, s.Text)
}

func checkText(at place, text string) error {
	if len(text) > maxText {
		return malformed(at, "", fmt.Sprintf("has more than %d bytes", maxText), "convert it in parts")
	}
	for i, line := range strings.Split(text, "\n") {
		here := at
		if strings.Contains(text, "\n") {
			here.line = i + 1
		}
		if !utf8.ValidString(line) {
			return malformed(here, "", "is not UTF-8", "convert it with iconv first, if it is text at all")
		}
		if strings.ContainsRune(line, 0) {
			return malformed(here, "", "has a NUL character: it is no text", "name the configuration file itself")
		}
	}
	return nil
}

func malformed(at place, key, what, remedy string) error {
	return &config.Error{Problems: []config.Problem{{File: at.file, Line: at.line, Key: key, What: what, Remedy: remedy}}}
}

// commandKinds are the commands that are known by their first word.
var commandKinds = map[string]Kind{
	"start_server": StartServer, "start_server.pl": StartServer, "einhorn": Einhorn, "foreman": Procfile, "honcho": Procfile,
}

// recognise finds out what a source is written for: a command line by its first word, a file by its name or what is in it.
func (s Source) recognise() (Kind, error) {
	remedy := "say which with --from: " + kindNames()
	if s.Args != nil {
		if len(s.Args) == 0 {
			return "", malformed(place{file: "the command line"}, "", "is empty", "write such as: supervisord convert -- start_server --port 80 -- ./app")
		}
		if k, ok := commandKinds[filepath.Base(s.Args[0])]; ok {
			return k, nil
		}
		return "", malformed(place{file: "argument 1"}, "", fmt.Sprintf("%q is none of the commands that are known", s.Args[0]), remedy)
	}
	if base := filepath.Base(s.Name); base == "Procfile" || strings.HasPrefix(base, "Procfile.") {
		return Procfile, nil
	}
	found := s.signs()
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", malformed(place{file: s.Name}, "", "is nothing that is known", remedy)
	}
	return "", malformed(place{file: s.Name}, "", fmt.Sprintf("may be %s or %s", found[0], found[1]), remedy)
}

// sectionKinds are the names of sections, up to a colon, by which an ini file is known.
var sectionKinds = map[string]Kind{
	"circus": Circus, "watcher": Circus, "socket": Circus, "plugin": Circus, "env": Circus,
	"supervisord": Supervisor, "program": Supervisor, "fcgi-program": Supervisor, "eventlistener": Supervisor, "group": Supervisor,
	"include": Supervisor, "unix_http_server": Supervisor, "inet_http_server": Supervisor, "supervisorctl": Supervisor,
	"rpcinterface": Supervisor,
}

// signs are the kinds of which there is a sign in the text.
func (s Source) signs() []Kind {
	var found []Kind
	see := func(k Kind) {
		if k != "" && !slices.Contains(found, k) {
			found = append(found, k)
		}
	}
	for line := range strings.SplitSeq(normal(s.Text), "\n") {
		line = strings.TrimSpace(line)
		if header, ok := strings.CutPrefix(line, "["); ok {
			name, _, _ := strings.Cut(strings.TrimRight(header, "] "), ":")
			name, _, _ = strings.Cut(name, "]")
			see(sectionKinds[name])
		}
	}
	if len(found) > 0 {
		return found
	}
	for line := range strings.SplitSeq(normal(s.Text), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		for word := range strings.FieldsSeq(line) {
			if word == "exec" || word == "env" || strings.Contains(word, "=") {
				continue
			}
			see(commandKinds[filepath.Base(word)])
			break
		}
	}
	if len(found) == 0 && procfileLine().MatchString(s.Text) {
		see(Procfile)
	}
	return found
}

// normal is text with the line ends of Unix and without a byte order mark.
func normal(text string) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(text, "\ufeff"))
}

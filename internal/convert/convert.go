// Package convert translates the configuration of another supervisor: the command line of start_server or einhorn, the ini file of
// circus or Python's supervisor, or a Procfile.
//
// A source is a row of the table sources and a file with its keys as a table of rules (rule.go). Everything that a source says ends
// up in a draft (draft.go), in the order of the source, in TOML that package config accepts. A key is converted, or a comment
// names its position, says that it has no equivalent, and what to do instead; no key is dropped. A source that its own supervisor
// would reject is an error.
package convert

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"example.org/supervisord/internal/config/document"
)

// SourceKind names the program that a source was written for.
type SourceKind string

// The kinds.
const (
	StartServer SourceKind = "start_server"
	Circus      SourceKind = "circus"
	Supervisor  SourceKind = "supervisor"
	Einhorn     SourceKind = "einhorn"
	Procfile    SourceKind = "procfile"
)

// sources lists how each kind is recognized, by the first word of a command line or by the sections of a file, and converted.
func sources() []converter {
	return []converter{
		{StartServer, "start_server start_server.pl", "", (*draft).startServer},
		{Circus, "", "circus watcher socket plugin env", (*draft).circus},
		{Supervisor, "", "supervisord program fcgi-program eventlistener group include unix_http_server inet_http_server supervisorctl rpcinterface",
			(*draft).supervisor},
		{Einhorn, "einhorn", "", (*draft).einhorn},
		{Procfile, "foreman honcho", "", (*draft).procfile},
	}
}

type converter struct {
	kind               SourceKind
	commands, sections string
	convert            func(d *draft)
}

// Kinds lists every kind, in the order of the documentation.
func Kinds() (kinds []SourceKind) {
	for _, s := range sources() {
		kinds = append(kinds, s.kind)
	}
	return kinds
}

// Source is what is converted: the text of a file, or a command line.
type Source struct {
	Kind    SourceKind // "": to be recognized
	Program string     // the name for the program of a command line; "": taken from its command
	Name    string     // the file's name in comments and errors
	Text    string
	Args    []string // a command line, word by word, instead of Name and Text
}

// World is what a source may refer to outside itself. Convert changes nothing in it.
type World struct {
	Dir    string // absolute; the base of the source's relative paths
	Host   string // this machine's name
	Getenv func(name string) (string, bool)
	Glob   func(pattern string) ([]string, error) // sorted
	Read   func(path string) (string, error)
}

// Result is a configuration and a summary of it.
type Result struct {
	Kind     SourceKind
	Text     string
	Programs int // that will run
	Off      int // that are commented out, because their own supervisor would not start them
	Lacking  int // settings without an equivalent
}

// The limits on a file of the source, and on the result, which is what package config reads.
const (
	MaxSource = 256 << 10
	maxResult = 1 << 20
)

// Convert converts a source. A malformed source is a *document.Error that lists every mistake with its position.
func Convert(s Source, w World) (Result, error) {
	err := checkText(location{file: s.Name}, s.Text)
	for i := 0; i < len(s.Args) && err == nil; i++ {
		err = checkText(location{file: fmt.Sprintf("argument %d", i+1)}, s.Args[i])
	}
	if s.Kind == "" && err == nil {
		s.Kind, err = s.recognize()
	}
	i := slices.Index(Kinds(), s.Kind)
	if err == nil && i < 0 {
		err = malformed(location{}, fmt.Sprintf("%q is unknown", s.Kind), "use one of "+kindNames())
	}
	if err != nil {
		return Result{}, err
	}
	d := newDocument(s, w)
	sources()[i].convert(d)
	return d.result()
}

func kindNames() string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(Kinds()), "[]"), " ", ", ")
}

// checkText rejects what is not text.
func checkText(at location, text string) error {
	if len(text) > MaxSource {
		return malformed(at, fmt.Sprintf("has more than %d bytes", MaxSource), "convert it in parts")
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if len(lines) > 1 {
			at.line = i + 1
		}
		if !utf8.ValidString(line) {
			return malformed(at, "is not UTF-8", "convert it with iconv(1) first")
		}
		if strings.ContainsRune(line, 0) {
			return malformed(at, "contains a NUL character", "name the configuration file itself")
		}
	}
	return nil
}

func malformed(at location, what, remedy string) error {
	return &document.Error{Problems: []document.Problem{{File: at.file, Line: at.line, What: what, Remedy: remedy}}}
}

// kindOfCommand returns the kind of a command line by its first word, "" if it is unknown.
func kindOfCommand(word string) SourceKind {
	for _, s := range sources() {
		if slices.Contains(strings.Fields(s.commands), filepath.Base(word)) {
			return s.kind
		}
	}
	return ""
}

// recognize finds the kind of a source: of a command line by its first word, of a file by its name or content.
func (s Source) recognize() (SourceKind, error) {
	remedy := "name its kind with --from: " + kindNames()
	switch {
	case s.Args != nil && len(s.Args) == 0:
		return "", malformed(location{file: "the command line"}, "is empty", "write for example: supervisord convert -- start_server --port 80 -- ./app")
	case s.Args != nil:
		if k := kindOfCommand(s.Args[0]); k != "" {
			return k, nil
		}
		return "", malformed(location{file: "argument 1"}, fmt.Sprintf("%q is not a known command", s.Args[0]), remedy)
	}
	if base := filepath.Base(s.Name); base == "Procfile" || strings.HasPrefix(base, "Procfile.") {
		return Procfile, nil
	}
	switch found := candidates(s.Text); len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", malformed(location{file: s.Name}, "is not a known kind of configuration", remedy)
	default:
		return "", malformed(location{file: s.Name}, fmt.Sprintf("may be %s or %s", found[0], found[1]), remedy)
	}
}

// candidates lists the kinds that the text of a file looks like: by its sections, else by its commands, else by its lines.
func candidates(text string) []SourceKind {
	var bySection, byCommand []SourceKind
	for line := range strings.SplitSeq(normal(text), "\n") {
		name, isSection := strings.CutPrefix(strings.TrimSpace(line), "[")
		for _, s := range sources() {
			if end := strings.IndexAny(name, ":]"); isSection && end >= 0 && slices.Contains(strings.Fields(s.sections), name[:end]) {
				bySection = append(bySection, s.kind)
			}
		}
		words := strings.Fields(line)
		for len(words) > 0 && (words[0] == "exec" || words[0] == "env" || strings.Contains(words[0], "=")) {
			words = words[1:]
		}
		if len(words) > 0 && kindOfCommand(words[0]) != "" {
			byCommand = append(byCommand, kindOfCommand(words[0]))
		}
	}
	for _, found := range [][]SourceKind{bySection, byCommand} {
		if slices.Sort(found); len(found) > 0 {
			return slices.Compact(found)
		}
	}
	if procfileLine().MatchString(text) {
		return []SourceKind{Procfile}
	}
	return nil
}

// normal returns text with Unix line ends and without a byte order mark.
func normal(text string) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(text, "\ufeff"))
}

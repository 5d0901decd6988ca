// Package source reads what another supervisor was started with: texts, ini files and their settings, each with its
// position.
package source

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/convert/shell"
)

// SourceKind names the program that a source was written for.
type SourceKind string

// The kinds.
const (
	StartServer SourceKind = "start_server"
	Supervisor  SourceKind = "supervisor"
	Procfile    SourceKind = "procfile"
	Systemd     SourceKind = "systemd"
	PM2         SourceKind = "pm2"
	Compose     SourceKind = "compose"
)

// Input is what is converted: the text of a file, or a command line.
type Input struct {
	Kind    SourceKind // "": to be recognized
	Program string     // the name for the program of a command line; "": taken from its command
	Name    string     // the file's name in comments and errors
	Text    string
	Stage   string   // which env_NAME of a pm2 app holds beside env; "": none
	Args    []string // a command line, word by word, instead of Name and Text
}

// World is what a source may refer to outside itself. A conversion changes nothing in it.
type World struct {
	Dir      string // absolute; the base of the source's relative paths
	Ordinary bool   // supervisord will run as an ordinary user
	Host     string // this machine's name
	Getenv   func(name string) (string, bool)
	Glob     func(pattern string) ([]string, error) // sorted
	Read     func(path string) (string, error)
}

// MaxText is the limit on a text of the source, in bytes.
const MaxText = 256 << 10

// CheckText rejects what is not text.
func CheckText(at Location, text string) error {
	if len(text) > MaxText {
		return Malformed(at, fmt.Sprintf("has more than %d bytes", MaxText), "convert it in parts")
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if len(lines) > 1 {
			at.Line = i + 1
		}
		if !utf8.ValidString(line) {
			return Malformed(at, "is not UTF-8", "convert it with iconv(1) first")
		}
		if strings.ContainsRune(line, 0) {
			return Malformed(at, "contains a NUL character", "name the configuration file itself")
		}
	}
	return nil
}

// Malformed is a source with one mistake.
func Malformed(at Location, what, remedy string) error {
	return &document.Error{Problems: []document.Problem{{File: at.File, Position: document.Position{Line: at.Line},
		What: what, Remedy: remedy}}}
}

// Normalize returns text with Unix line ends and without a byte order mark.
func Normalize(text string) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(text, "\ufeff"))
}

// Location is a line of a file, or an argument of a command line ("argument 3", without a line).
type Location struct {
	File string
	Line int
}

func (p Location) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// Setting is one key or option of a source.
type Setting struct {
	At       Location
	Key      string
	As       string // how errors show the key; "": like that
	Value    string
	Text     string   // how comments show it; "": key = value
	Comments []string // of the source, next to it
	Node     *Node    // in a structured source
}

func (s Setting) String() string {
	switch {
	case s.Key == "password", s.Key == "username":
		return s.Key // the value must not get into comments
	case s.Text != "":
		return Shorten(s.Text)
	}
	return s.Key + " = " + Shorten(s.Value)
}

// Shorten keeps a value in a comment readable.
func Shorten(s string) string {
	if runes := []rune(shell.Show(s)); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return shell.Show(s)
}

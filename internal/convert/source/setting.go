package source

import (
	"strconv"

	"example.org/supervisord/internal/convert/shell"
)

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

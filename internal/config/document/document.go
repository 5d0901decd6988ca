// Package document reads TOML documents in which every mistake has a position and a remedy. The caller brings the keys:
// tables (Fields) that say how each key is read, by the readers of Value.
//
// ReadFile reads a file, New locates its keys and bounds what a hostile file can cost, Parse makes a tree of it, and
// Decode reads a table. Every step reports all the problems that it finds; nothing is guessed and nothing is ignored.
package document

import (
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// Document is one file and what has been found in it.
type Document struct {
	File     string // absolute
	Dir      string // its folder: relative paths start here
	Problems []Problem
	Warnings []Problem

	// Unknown returns what to write instead of a key that this table does not have, and the full name of the key that is
	// meant; "": nothing. It may be nil, as may Scalar, which returns what to write instead of a value that should be a
	// table.
	Unknown func(table Value, key string) (meant, remedy string)
	Scalar  func(v Value) (remedy string)

	root      Value
	positions positions
	typos     map[string]bool // full names of known keys, where something like them is written
}

// Value is something in a document, and its full name, by which its position is found.
type Value struct {
	In  *Document
	Key string
	Raw any // as the decoder returned it; nil: not set
}

// New locates the keys of a text. A text that exceeds a bound is a Problem. The text may be anything: Parse says
// whether it is TOML.
func New(file, dir, text string) (*Document, *Problem) {
	found, at, err := findPositions(text)
	if err != nil {
		return nil, &Problem{File: file, Position: at, What: err.Error(), Remedy: "this is more than any configuration needs"}
	}
	return &Document{File: file, Dir: dir, positions: found, typos: map[string]bool{}}, nil
}

// Parse parses the text that New was given, and returns its root table. Text that is not TOML is a Problem.
func (d *Document) Parse(text string) (Value, *Problem) {
	var tree map[string]any
	_, err := toml.Decode(text, &tree)
	if syntax, is := errors.AsType[toml.ParseError](err); is {
		return Value{}, &Problem{
			File: d.File, Position: Position{syntax.Position.Line, syntax.Position.Col}, Key: strings.Clone(syntax.LastKey),
			What: "not valid TOML: " + strings.TrimSuffix(syntax.Message, "."), Remedy: syntaxRemedy(syntax.Message),
		}
	}
	if err != nil {
		return Value{}, &Problem{File: d.File, What: err.Error()}
	}
	d.root = Value{In: d, Raw: tree}
	return d.root, nil
}

// Root is the table of the whole document.
func (d *Document) Root() Value { return d.root }

// syntaxRemedy is the remedy for the most frequent syntax errors.
func syntaxRemedy(message string) string {
	switch {
	case strings.Contains(message, "leading zero"):
		_, number, _ := strings.Cut(message, `"`)
		number, _, _ = strings.Cut(number, `"`)
		return fmt.Sprintf("write it in quotes: %q", number)
	case strings.HasPrefix(message, "expected value but found"), strings.Contains(message, "must start with a digit"):
		return `write strings in quotes: "…"`
	case strings.Contains(message, "already been defined"), strings.Contains(message, "already exists"):
		return "write it once"
	}
	return ""
}

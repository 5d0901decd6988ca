// Package document reads TOML documents in which every mistake has a position and a remedy. The caller brings the keys:
// tables (Fields) that say how each key is read, by the readers of Value.
//
// ReadFile reads a file, Parse makes a tree of it and locates its keys, and Decode reads a table. Every step reports
// all the problems that it finds; nothing is guessed and nothing is ignored.
package document

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"example.org/supervisord/internal/foreign"
)

// Document is one file and what has been found in it.
type Document struct {
	File string // absolute
	Dir  string // its folder: relative paths start here

	Report func(Problem) // takes what is found

	// Unknown returns what to write instead of a key that this table does not have, and the full name of the key that is
	// meant; "": nothing. It may be nil, as may Scalar, which returns what to write instead of a value that should be a
	// table.
	Unknown func(table Value, key string) (meant, remedy string)
	Scalar  func(v Value) (remedy string)

	Positions Positions

	typos map[string]bool // full names of known keys, where something like them is written
}

// Value is something in a document, and its full name, by which its position is found.
type Value struct {
	In  *Document
	Key string
	Raw any // as the decoder returned it; nil: not set
}

// Parse locates the keys of a text, within bounds of what a hostile one can cost, and returns its root table. A text
// that exceeds a bound, or is not TOML, is a Problem.
func Parse(file, dir, text string) (Value, *Problem) {
	found, at, err := findPositions(text)
	if err != nil {
		return Value{}, &Problem{File: file, Position: at, What: err.Error(),
			Remedy: "this is more than any configuration needs"}
	}
	var tree map[string]any
	_, err = toml.Decode(text, &tree)
	if syntax, is := errors.AsType[toml.ParseError](err); is {
		return Value{}, &Problem{
			File: file, Position: Position{Line: syntax.Position.Line, Column: syntax.Position.Col},
			Key: strings.Clone(syntax.LastKey), What: "not valid TOML: " + strings.TrimSuffix(syntax.Message, "."),
			Remedy: syntaxRemedy(syntax.Message),
		}
	}
	if err != nil {
		return Value{}, &Problem{File: file, What: err.Error()}
	}
	return Value{In: &Document{File: file, Dir: dir, Positions: found, typos: map[string]bool{}}, Raw: tree}, nil
}

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

// maxFileSize bounds every file that ReadFile reads, in bytes.
const maxFileSize = 1 << 20

// ReadFile reads a regular file of at most maxFileSize bytes. It never waits: it refuses a FIFO or a device without
// opening it.
func ReadFile(path string) ([]byte, error) {
	f, err := foreign.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = fmt.Errorf("read %s: more than %d bytes", path, maxFileSize)
	}
	return data, err
}

// Problem is something wrong at a position in a file.
type Problem struct {
	File     string // absolute
	Position        // zero: the file as a whole
	Severity Severity
	// dotted, such as "program.web.ready.timeout" or "program.web.listen[0].address"; "": the file as a whole
	Key    string
	What   string // what is wrong
	Remedy string // what would be right
}

// Severity says what a Problem prevents.
type Severity string

// A problem without another severity is an error: the configuration is refused.
const (
	Warning Severity = "warning" // it is accepted, and probably not what was meant
	Note    Severity = "note"    // good to know
)

// IsError reports whether the problem prevents what it concerns, instead of being good to know.
func (p Problem) IsError() bool { return p.Severity == "" }

// String is the problem as one line, in the form that editors and compilers share: FILE:LINE:COLUMN: SEVERITY: KEY:
// what is wrong: remedy. What is not known is left out, as is the severity of an error.
func (p Problem) String() string {
	position := p.File
	for _, n := range []int{p.Line, p.Column} {
		if n > 0 {
			position += ":" + strconv.Itoa(n)
		}
	}
	parts := slices.DeleteFunc([]string{position, string(p.Severity), p.Key, p.What, p.Remedy},
		func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// Error is a configuration that was refused: one or more Problems, by file (in the order in which they were read) and
// line.
type Error struct{ Problems []Problem }

// Error lists the problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// SortProblems puts problems in the order in which a reader finds their positions. What two steps both found is said
// once.
func SortProblems(problems []Problem, files []string) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.What, b.What),
		)
	})
	return slices.Compact(problems)
}

// Nearest returns the known word that was probably meant by word: the one with the fewest changed, missing, extra or
// swapped letters, if these are at most a third of it.
func Nearest(word string, known []string) (string, bool) {
	best, bestDistance := "", len(word)/3+1
	for _, k := range known {
		if len(k) > len(word)+bestDistance || len(word) > len(k)+bestDistance {
			continue
		}
		if d := distance(word, k); d <= bestDistance && (best == "" || d < bestDistance) {
			best, bestDistance = k, d
		}
	}
	return best, best != ""
}

// distance is the optimal string alignment distance of a and b, in bytes.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(last[j]+change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

package document

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

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

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is something wrong at a place in a file.
type Problem struct {
	File   string // absolute
	Line   int    // 0: the file as a whole
	Key    string // dotted, such as "program.web.ready.timeout" or "program.web.listen[0].address"; "": the file as a whole
	What   string // what is wrong
	Remedy string // what would be right
}

// String is the problem as one line: FILE:LINE: KEY: what is wrong: remedy. What is not known is left out.
func (p Problem) String() string {
	place := p.File
	if p.Line > 0 {
		place = fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	parts := slices.DeleteFunc([]string{place, p.Key, p.What, p.Remedy}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// Error is a configuration that was refused: one or more Problems, by file (in the order in which they were read) and line.
type Error struct{ Problems []Problem }

// Error lists the problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sortProblems puts problems in the order in which a reader finds their places. What two steps both found is said once.
func sortProblems(problems []Problem, files []string) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.What, b.What),
		)
	})
	return slices.Compact(problems)
}

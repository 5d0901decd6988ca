package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestMutantsAreSmallMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	const text = `package a

// A 1 in a comment stays.
func f(a, b int, c bool) bool {
	if a < b && !c {
		a++
		return true
	}
	a += 7
	return false
}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := mutants([]string{filepath.Dir(file)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, m.what)
	}
	want := []string{
		"`!(a < b && !c)` instead of `a < b && !c`", "`a < b` instead of `a < b && !c`", "`!c` instead of `a < b && !c`",
		"`<=` instead of `<`", "`c` instead of `!c`", "`{}` instead of `a++`", "`false` instead of `true`",
		"`{}` instead of `a += 7`", "`8` instead of `7`", "`true` instead of `false`",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the mutants are\n%q, want\n%q", got, want)
	}
	if m := all[3]; m.place() != file+":5:7" || text[m.from:m.to] != "<" {
		t.Errorf("the fourth is at %s and replaces %q", m.place(), text[m.from:m.to])
	}
}

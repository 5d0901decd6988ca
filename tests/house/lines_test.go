package main

import (
	"slices"
	"strings"
	"testing"
)

func TestLinesAreCountedByWhatIsOnThem(t *testing.T) {
	for text, want := range map[string]lineCount{
		"":                               {},
		"package a\n\n// A comment.\n\n": {code: 1, comment: 1},
		"package a // both\n":            {code: 1},
		"package a\n/* one\n\ntwo */ var x int\n":  {code: 2, comment: 2},
		"package a\nconst t = `one\n\n// three`\n": {code: 4},
	} {
		if got := countLines([]byte(text)); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func TestWideLinesAreListed(t *testing.T) {
	for text, want := range map[string][]string{
		"package a\n// " + strings.Repeat("ä", 117) + "\n": nil,
		"package a\n// " + strings.Repeat("ä", 118) + "\n": {"a.go:2: 121"},
	} {
		if got := wideLines("a.go", []byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

package main

import (
	"strings"
	"testing"
)

func TestLinesAreCountedByWhatIsOnThem(t *testing.T) {
	long := "var x = \"" + strings.Repeat("ä", 120) + "\"\n"
	for text, want := range map[string]lineCount{
		"":                               {},
		"package a\n\n// A comment.\n\n": {code: 1, comment: 1},
		"package a // both\n":            {code: 1},
		"package a\n/* one\n\ntwo */ var x int\n":          {code: 2, comment: 2},
		"package a\nconst t = `one\n\n// three`\n":         {code: 4},
		"package a\n" + long:                               {code: 2, wide: 1},
		"package a\n// " + strings.Repeat("ä", 117) + "\n": {code: 1, comment: 1},
		"package a\n// " + strings.Repeat("ä", 118) + "\n": {code: 1, comment: 1, wide: 1},
	} {
		if got := countLines([]byte(text)); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

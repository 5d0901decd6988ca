package shell

import (
	"errors"
	"slices"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

func TestSplitReadsWordsAsShlexDoes(t *testing.T) {
	for value, want := range map[string][]string{
		"":                      nil,
		" a\tb\n c ":            {"a", "b", "c"},
		`a "b c" 'd\e' f\ g ""`: {"a", "b c", `d\e`, "f g", ""},
		`"\"\\\n" x'y'"z"`:      {`"\\n`, "xyz"},
		"$A `b` |;":             {"$A", "`b`", "|;"},
	} {
		if got, err := Split(value); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", value, got, err, want)
		}
	}
	for value, want := range map[string]error{`a "b`: errQuote, "'": errQuote, `a\`: errEscape, `"a\`: errQuote} {
		if _, err := Split(value); !errors.Is(err, want) {
			t.Errorf("%q: %v; want %v", value, err, want)
		}
	}
}

func TestAShellDoesNotSplitAQuotedPart(t *testing.T) {
	part := Part(Unquoted, "${A}")
	words := must.Get(Split("run x" + part + ` "y` + part + `" ` + Part(Descriptor, "web")))(t)
	got := Invocation{Words: words}.Argv()
	if want := []string{"sh", "-c", `exec run x${A} y"${A}" {fd:web}`}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

func TestShellStaysInFrontOfItsProgram(t *testing.T) {
	for script, want := range map[string]bool{
		"exec ./web": false, "./web -v": false, "A=1 ./web": false, "cd /srv && exec ./web": false, "": false, "a '": false,
		". env; exec ./web": false, "cd /srv && ./web": true, "a; ./web": true, "a | b": true, "if a; then b; fi": true,
		"./web &": true, "a || exec b": false,
	} {
		if got := Stays([]string{"/bin/bash", "-lc", script}); got != want {
			t.Errorf("%q: %v", script, got)
		}
	}
	for _, words := range [][]string{{"sh", "-c"}, {"sh", "run", "a; b"}, {"python", "-c", "a; b"}} {
		if Stays(words) {
			t.Errorf("%q stays", words)
		}
	}
}

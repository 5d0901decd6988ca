package document

import (
	"fmt"
	"testing"
)

func TestNearestKnownWord(t *testing.T) {
	known := []string{"timeout", "method", "interval", "min", "max"}
	for word, want := range map[string]string{"timout": "timeout", "tiemout": "timeout", "mehtod": "method", "mn": "min",
		"intervall": "interval", "xyzzy": "", "": ""} {
		if got, _ := Nearest(word, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}

func TestProblemWithoutPosition(t *testing.T) {
	if got := fmt.Sprint(Problem{File: "f", What: "is bad"}); got != "f: is bad" {
		t.Errorf("got %q", got)
	}
}

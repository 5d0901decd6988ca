package main

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

// held are the measures that must keep their targets; each is a test.
var held = []string{
	"lines over 120 columns, with tests",
	"functions over 60 lines",
	"imports that point up",
	"exported names without a caller outside",
}

func TestSourceCodeKeepsItsShape(t *testing.T) {
	m := must.Get(readModule("../..", "../../examples"))(t)
	all := map[string]measure{}
	for _, one := range m.measures() {
		all[one.what] = one
	}
	for _, what := range held {
		t.Run(what, func(t *testing.T) {
			one, ok := all[what]
			if !ok {
				t.Fatalf("nothing measures %q", what)
			}
			if !one.met {
				t.Errorf("%s, at most %s allowed:\n%s", one.now, one.target, strings.Join(one.detail, "\n"))
			}
		})
	}
}

package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

var stepName = regexp.MustCompile(`"([a-z-]+)": +\(\*(?:story|pipeline)\)\.`)

// TestStepsOfStoriesAreReached: testscript looks for its own commands first, so a step with the name of one is never
// taken; with that of stop, the rest of a story passes unread.
func TestStepsOfStoriesAreReached(t *testing.T) {
	own := strings.Fields("cd chmod cmp cmpenv cp env exec exists grep kill mkdir mv rm skip stderr stdin stdout stop " +
		"symlink ttyin ttyout unix2dos unquote wait")
	steps := 0
	for _, path := range []string{"testscript_test.go", "systemd/script_test.go", "engines/script_test.go"} {
		text := must.Get(os.ReadFile("../" + path))(t)
		for _, name := range stepName.FindAllStringSubmatch(string(text), -1) {
			if steps++; slices.Contains(own, name[1]) {
				t.Errorf("tests/%s: %s is a command of testscript: choose another name", path, name[1])
			}
		}
	}
	if steps < 60 {
		t.Errorf("found only %d steps", steps)
	}
}

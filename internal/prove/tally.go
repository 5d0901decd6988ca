package prove

import (
	"strings"

	"example.org/supervisord/internal/lab/load"
)

// mostTexts is of how many lost requests the whole error is kept.
const mostTexts = 10_000

// tally is every request so far.
type tally struct {
	all  load.Attempts
	lost int
}

func (t *tally) add(a load.Attempt) {
	if a.Lost != nil {
		if t.lost++; t.lost > mostTexts {
			a.Lost.Text = knownText(a.Lost.Text)
		}
	}
	t.all = append(t.all, a)
}

// knownText returns the part of an error's text by which its cause is known, or "": nothing else of the text stays in memory.
func knownText(text string) string {
	for _, known := range []string{noPort, noDescriptor} {
		if strings.Contains(text, known) {
			return known
		}
	}
	return ""
}

package terminal

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The escape sequences that only change how text looks, and the one that ends that.
const (
	color   = `\x1b\[[0-9;:]*m`
	noColor = "\x1b[0m"
)

// Visible makes a worker's line safe for a terminal. Colors stay, but end with the line. All other control characters,
// which could move the cursor or write to the clipboard, become ^[ or <U+202E>.
func Visible(line string) string {
	if utf8.ValidString(line) && !strings.ContainsFunc(line, steers) {
		return line
	}
	var b strings.Builder
	sequences := regexp.MustCompile(color).FindAllStringIndex(line, -1)
	at := 0
	for _, s := range sequences {
		b.WriteString(shown(line[at:s[0]]) + line[s[0]:s[1]])
		at = s[1]
	}
	b.WriteString(shown(line[at:]))
	if len(sequences) > 0 {
		b.WriteString(noColor)
	}
	return b.String()
}

// steers reports whether a character makes a terminal do something, instead of being shown.
func steers(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

func shown(text string) string {
	var b strings.Builder
	for _, r := range text { // a byte that is not UTF-8, which some terminals take for a control character, becomes U+FFFD
		switch {
		case !steers(r):
			b.WriteRune(r)
		case r < 0x80:
			b.WriteString("^" + string(r^0x40))
		default:
			fmt.Fprintf(&b, "<%U>", r)
		}
	}
	return b.String()
}

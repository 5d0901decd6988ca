package terminal

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Lines are lines at the bottom of a terminal that change in place: what a command waits for, until its result comes. The methods of a
// nil Lines do nothing. They are not safe for concurrent use.
type Lines struct {
	out   *os.File
	from  time.Time // nothing is shown before: a command that is quick shows only its result
	shown []string
}

// NewLines returns lines that appear when a command has taken so long; nil if out is not a terminal.
func NewLines(out *os.File, after time.Duration) *Lines {
	if !Is(out) {
		return nil
	}
	return &Lines{out: out, from: time.Now().Add(after)}
}

// Show replaces the lines. Each is cut to the width of the terminal.
func (l *Lines) Show(lines ...string) {
	if l != nil && !time.Now().Before(l.from) {
		l.draw(lines)
	}
}

// Clear removes the lines, so that something else can be written there. Show draws them again.
func (l *Lines) Clear() {
	if l != nil {
		l.draw(nil)
	}
}

func (l *Lines) draw(lines []string) {
	if slices.Equal(lines, l.shown) {
		return
	}
	var b strings.Builder
	if len(l.shown) > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", len(l.shown))
	}
	b.WriteString("\r\x1b[J")
	columns, _ := Size(l.out)
	for _, line := range lines {
		b.WriteString(Cut(line, columns-1) + "\n")
	}
	l.shown = slices.Clone(lines)
	l.out.WriteString(b.String()) //nolint:errcheck // it is only drawn
}

// Cut shortens a line to a width. Colors take no room.
func Cut(line string, width int) string {
	plain, shown := !strings.Contains(line, "\x1b"), 0
	for i, sequence := 0, false; i < len(line); {
		r, size := utf8.DecodeRuneInString(line[i:])
		switch {
		case r == '\x1b':
			sequence = true
		case sequence:
			sequence = r != 'm'
		case shown == width && plain:
			return line[:i]
		case shown == width:
			return line[:i] + "\x1b[0m"
		default:
			shown++
		}
		i += size
	}
	return line
}

// Package terminal reports whether a file is a terminal and how large the terminal is, colors text, and makes text safe
// and short enough for a terminal.
package terminal

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Lines are lines at the bottom of a terminal that change in place: the progress of a command, until its result comes.
// The methods of a nil Lines do nothing. They are not safe for concurrent use.
type Lines struct {
	out   *os.File
	from  time.Time // nothing is shown before: a quick command shows only its result
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

// Cut shortens a line to a width; the last character of a shortened line is "…". Colors take no room.
func Cut(line string, width int) string {
	plain, shown, last := !strings.Contains(line, "\x1b"), 0, 0
	for i, sequence := 0, false; i < len(line); {
		r, size := utf8.DecodeRuneInString(line[i:])
		switch {
		case r == '\x1b':
			sequence = true
		case sequence:
			sequence = r != 'm'
		case shown == width && plain:
			return line[:last] + "…"
		case shown == width:
			return line[:last] + "…\x1b[0m"
		default:
			shown, last = shown+1, i
		}
		i += size
	}
	return line
}

// Is reports whether a file is a terminal.
func Is(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// The size of a terminal that does not tell.
const (
	usualColumns = 80
	usualRows    = 24
)

// Size returns the size of a terminal, 80 by 24 if it is not known.
func Size(f *os.File) (columns, rows int) {
	columns, rows = usualColumns, usualRows
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return columns, rows
	}
	if size.Col > 1 {
		columns = int(size.Col)
	}
	if size.Row > 1 {
		rows = int(size.Row)
	}
	return columns, rows
}

// Width returns how wide a text to read should be: $COLUMNS, else the width of the terminal, else 80.
func Width(f *os.File) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 1 {
		return n
	}
	columns, _ := Size(f)
	return columns
}

// Palette colors text. The zero value leaves text as it is.
type Palette struct{ on bool }

// Colors returns the palette for a file: with colors only on a terminal that has them, and not if $NO_COLOR is set.
func Colors(f *os.File) Palette {
	return Palette{os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && Is(f)}
}

// Good colors what is well.
func (p Palette) Good(text string) string { return p.paint("32", text) }

// Plain leaves text as it is, as wide for a table as the colored cells beside it.
func (p Palette) Plain(text string) string { return p.paint("39", text) }

// Warn colors what needs attention.
func (p Palette) Warn(text string) string { return p.paint("33", text) }

// Bad colors what has failed.
func (p Palette) Bad(text string) string { return p.paint("31", text) }

// Strong makes a heading stand out.
func (p Palette) Strong(text string) string { return p.paint("1", text) }

func (p Palette) paint(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

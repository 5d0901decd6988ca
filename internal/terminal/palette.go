package terminal

import "os"

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

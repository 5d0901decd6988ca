package output

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzPump: what a worker writes arrives whole and in order, in whole lines, whatever the pieces that are read; a long
// line may be cut.
func FuzzPump(f *testing.F) {
	f.Add([]byte("one\ntwo\n\nthree"), uint8(1), uint8(5))
	f.Add([]byte("\n\n\r\x00\xff"), uint8(0), uint8(2))
	f.Add(bytes.Repeat([]byte("x"), 300), uint8(255), uint8(200))
	f.Fuzz(func(t *testing.T, text []byte, first, second uint8) {
		var got []byte
		all := bytes.Repeat(text, 1+int(first)) // so that a few are longer than longestLine
		p := &Pump{tail: new(tail), write: func(lines []byte) {
			if end := len(got) + len(lines); !bytes.HasSuffix(lines, []byte("\n")) && end < len(all) &&
				len(lines) <= longestLine {
				t.Errorf("%.40q… is cut in the middle of a line", lines)
			}
			got = append(got, lines...)
		}}
		pieces := []int{int(first)*300 + 1, int(second)*300 + 1}
		for i, rest := 0, all; len(rest) > 0; i++ {
			n := min(pieces[i%2], len(rest))
			p.take(rest[:n])
			rest = rest[n:]
			if len(p.Unfinished()) > longestLine+pieces[i%2] {
				t.Fatalf("%d bytes are kept", len(p.Unfinished()))
			}
		}
		p.flush()
		if !bytes.Equal(got, all) {
			t.Errorf("%d bytes became %d", len(all), len(got))
		}
		for _, line := range p.Tail() {
			if len(line) > 3*tailLine || !utf8.ValidString(line) ||
				strings.ContainsFunc(strings.ReplaceAll(line, "\t", ""), unicode.IsControl) || Printable(line) != line {
				t.Errorf("the tail has %q", line)
			}
		}
	})
}

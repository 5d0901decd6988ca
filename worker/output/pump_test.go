package output

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestTailOfLongLinesIsBounded(t *testing.T) {
	var tl tail
	for i := range 100 {
		tl.add([]byte(strings.Repeat("x", 5000) + fmt.Sprint(i) + "\n"))
	}
	tl.add(bytes.Repeat([]byte("y"), 1<<20))
	lines := tl.lines()
	if len(lines) != 1 || len(lines[0]) != tailLine || cap(tl.data) > 4*tailBytes {
		t.Errorf("%d lines, %d bytes kept", len(lines), cap(tl.data))
	}
}

// Stacks are longer than the tail: what the process died of comes before.
func TestTailBeginsWithTheCauseOfTheEnd(t *testing.T) {
	const frame = "main.f()\n\t/src/main.go:7 +0x1d\n"
	for name, c := range map[string]struct {
		said, want string
		lines      int
	}{
		"a short stack": {"log\npanic: boom\n\n" + frame, "log", 5},
		"a long stack":  {"log\npanic: boom\n\n" + strings.Repeat(frame, 50), "panic: boom", tailLines},
		"many goroutines": {"panic: old\nfatal error: all goroutines are asleep - deadlock!\n" +
			strings.Repeat(frame, 5000), "fatal error: all goroutines are asleep - deadlock!", tailLines},
		"a long line after": {"panic: boom\n" + strings.Repeat("x", 1<<20), "panic: boom", 3},
		"no stack":          {strings.Repeat("http: panic: recovered\n", 5000) + "end", "http: panic: recovered", tailLines},
	} {
		for _, size := range []int{1, 7, tailBytes - 1, chunkSize} {
			var tl tail
			for piece := range slices.Chunk([]byte(c.said), size) {
				tl.add(piece)
			}
			if lines := tl.lines(); len(lines) != c.lines || lines[0] != c.want {
				t.Errorf("%s, in pieces of %d: %d lines, the first is %q", name, size, len(lines), lines[0])
			}
		}
	}
}

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

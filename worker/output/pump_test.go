package output

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
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

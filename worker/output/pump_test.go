package output

import (
	"bytes"
	"fmt"
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

package spawn

import (
	"fmt"
	"strings"
	"testing"
)

// A fork leaves out private memory without a file or a name, and nothing else, whatever other lines /proc/self/maps has.
func FuzzMappings(f *testing.F) {
	f.Add("00400000-00500000 r-xp 00000000 08:01 131 /bin/x\n00500000-00501000 rw-p 00000000 00:00 0\nc000000000-c000400000 rw-p 00000000 00:00 0\n")
	f.Add("5-1 rw-p 0 00:00 0\n1-5 rw-s 0 00:00 0\n6-7 rw-p 0 00:00 0 [stack]\nx-y rw-p 0 00:00 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		found := unneeded(text)
		for _, m := range found {
			var ends string
			for line := range strings.Lines(text) {
				var from, to uintptr
				var access string
				if n, _ := fmt.Sscanf(strings.ToLower(line), "%x-%x %s", &from, &to, &access); n == 3 && from == m.begin && to == m.end && len(strings.Fields(line)) == 5 {
					ends += access[len(access)-1:]
				}
			}
			if m.begin >= m.end || !strings.Contains(ends, "p") {
				t.Errorf("%#x-%#x is left out of forks: %q", m.begin, m.end, ends)
			}
		}
		if strings.HasSuffix(text, "\n") {
			text += "10-20 r--p 0 08:01 9 /bin/x\n20-30 rw-p 0 00:00 0\n40-50 rw-p 0 00:00 0\n"
			if more := unneeded(text)[len(found):]; len(more) != 1 || more[0] != (mapping{0x40, 0x50}) {
				t.Errorf("%v", more)
			}
		}
	})
}

package spawn

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestForksLeaveOutMemoryThatGoHasNamed(t *testing.T) {
	const maps = `00400000-00a00000 r-xp 00000000 08:01 131                                /usr/bin/supervisord
00a00000-00a40000 rw-p 00600000 08:01 131                                /usr/bin/supervisord
00a40000-00a80000 rw-p 00000000 00:00 0
c000000000-c000400000 rw-p 00000000 00:00 0                              [anon: Go: heap]
c000400000-c004000000 ---p 00000000 00:00 0                              [anon:Go:heap reservation]
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7f0000200000-7f0000300000 rw-s 00000000 00:01 7                          [anon_shmem: area]
7ffc00000000-7ffc00100000 rw-p 00000000 00:00 0                          [stack]
`
	want := []region{{0xc000000000, 0xc000400000}, {0xc000400000, 0xc004000000}, {0x7f0000000000, 0x7f0000100000}}
	if got := unneeded(maps); !slices.Equal(got, want) {
		t.Errorf("%x instead of %x", got, want)
	}
}

// A fork leaves out private memory without a file or a name of the kernel, and nothing else, whatever other lines
// /proc/self/maps has.
func FuzzMappings(f *testing.F) {
	f.Add("00400000-00500000 r-xp 00000000 08:01 131 /bin/x\n00500000-00501000 rw-p 00000000 00:00 0\n" +
		"c000000000-c000400000 rw-p 00000000 00:00 0\n")
	f.Add("c000-d000 rw-p 0 00:00 0 [anon: Go: heap]\n")
	f.Add("5-1 rw-p 0 00:00 0\n1-5 rw-s 0 00:00 0\n6-7 rw-p 0 00:00 0 [stack]\nx-y rw-p 0 00:00 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		found := unneeded(text)
		for _, m := range found {
			var ends string
			for line := range strings.Lines(text) {
				var from, to uintptr
				var access string
				if n, _ := fmt.Sscanf(strings.ToLower(line), "%x-%x %s", &from, &to, &access); n == 3 && from == m.begin &&
					to == m.end && !kernelNamed(line) {
					ends += access[len(access)-1:]
				}
			}
			if m.begin >= m.end || !strings.Contains(ends, "p") {
				t.Errorf("%#x-%#x is left out of forks: %q", m.begin, m.end, ends)
			}
		}
		if strings.HasSuffix(text, "\n") {
			text += "10-20 r--p 0 08:01 9 /bin/x\n20-30 rw-p 0 00:00 0\n40-50 rw-p 0 00:00 0\n"
			if more := unneeded(text)[len(found):]; len(more) != 1 || more[0] != (region{0x40, 0x50}) {
				t.Errorf("%v", more)
			}
		}
	})
}

func kernelNamed(line string) bool {
	fields := strings.Fields(line)
	return len(fields) > 5 && !strings.HasPrefix(fields[5], "[anon:")
}

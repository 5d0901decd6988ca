package spawn

import (
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// left is what forks leave out.
var left = struct {
	sync.Mutex
	mapped []metrics.Sample // how much memory the Go runtime has mapped
	last   uint64           // when leaveMemory looked
}{mapped: []metrics.Sample{{Name: "/memory/classes/total:bytes"}}}

// leaveMemory makes forks leave out the heap and everything else that the Go runtime has mapped. To copy its page
// tables, and then every page that this process writes, costs more than all the rest of a fork. The child needs the
// program, its variables and the area only.
func leaveMemory() {
	left.Lock()
	defer left.Unlock()
	metrics.Read(left.mapped)
	mapped := left.mapped[0].Value.Uint64()
	if mapped == left.last {
		return
	}
	left.last = mapped
	maps, _ := os.ReadFile("/proc/self/maps") // without it, the kernel copies them
	for _, m := range unneeded(string(maps)) {
		unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_WIPEONFORK) //nolint:errcheck // then it is copied
	}
}

type mapping struct{ begin, end uintptr }

// unneeded returns the mappings in /proc/self/maps of private memory without a file, but for the one after a file: it
// has the rest of the file's variables, those that are zero at first. "[anon:…]" is a name that the Go runtime has
// given (CONFIG_ANON_VMA_NAME of the kernel); other names in brackets are the kernel's, such as that of the stack.
func unneeded(maps string) (list []mapping) {
	variables := uintptr(0) // where they begin, after a file
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		begin, end, _ := strings.Cut(fields[0], "-")
		from, err1 := strconv.ParseUint(begin, 16, 64)
		to, err2 := strconv.ParseUint(end, 16, 64)
		m := mapping{uintptr(from), uintptr(to)}
		switch {
		case err1 != nil || err2 != nil || from >= to:
		case len(fields) > 5 && !strings.HasPrefix(fields[5], "[anon:"):
			variables = m.end
		case m.begin != variables && strings.HasSuffix(fields[1], "p"):
			list = append(list, m)
		}
	}
	return list
}

package spawn

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnneededMemoryIsPrivateAndNotOfAFile(t *testing.T) {
	const maps = `00400000-00a3d000 r-xp 00000000 fe:00 1017                               /usr/sbin/supervisord
010a4000-01110000 rw-p 00ca3000 fe:00 1017                               /usr/sbin/supervisord
01110000-03154000 rw-p 00000000 00:00 0 
15dad7400000-15dad7800000 rw-p 00000000 00:00 0 
15dad7800000-15dad8000000 ---p 00000000 00:00 0 
7f82dbf50000-7f82dc200000 rw-s 00000000 00:01 5                          /dev/zero (deleted)
7f82dc200000-7f82dc300000 rw-p 00000000 00:00 0 
7f82dc400000-7f82dc500000 rw-p 00000000 00:00 0 
7ffe4aa64000-7ffe4aa85000 rw-p 00000000 00:00 0                          [stack]
nonsense
`
	want := []mapping{{0x15dad7400000, 0x15dad7800000}, {0x15dad7800000, 0x15dad8000000}, {0x7f82dc400000, 0x7f82dc500000}}
	if got := unneeded(maps); !slices.Equal(got, want) {
		t.Errorf("%x", got)
	}
}

var heap []byte

// A process that waits in its exec has nothing of what Go has mapped. Its area can be read there, as everything else that it needs.
func TestForkLeavesOutTheHeap(t *testing.T) {
	heap = make([]byte, 32<<20)
	for i := range heap {
		heap[i] = 1
	}
	dir := t.TempDir()
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Execution{Argv: []string{"sleep", "1000"}, Files: []int{0, 1, 2}}
	l, failure := Prepare(c)
	if failure != nil {
		t.Fatal(failure)
	}
	defer l.Close()
	b := &builder{c: c, area: l.area, p: l.plan}
	b.call(unix.SYS_OPENAT, here, b.text(dir+"/fifo"), unix.O_RDONLY).may = anyError // until somebody writes
	pid, pidfd, failure := l.Fork(-1)
	l.Close()
	if failure != nil {
		t.Fatal(failure)
	}
	s := &forked{pid, pidfd, l.Report}
	var resident, total int
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err == nil {
		_, err = fmt.Sscan(string(text), &total, &resident)
	}
	if size := resident * os.Getpagesize(); err != nil || size == 0 || size > 16<<20 {
		t.Errorf("%d bytes are resident, %v", size, err)
	}
	unix.Kill(pid, unix.SIGKILL)
	s.reported(c)
	s.wait()
}

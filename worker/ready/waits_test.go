package ready

import (
	"fmt"
	"strings"
	"testing"
)

func TestAcceptOfASocketThatIsNotThereFailsAtOnce(t *testing.T) {
	k, err := newKernelView([]int{1 << 20})
	if err == nil {
		t.Errorf("there is a view %v", k)
	}
}

func TestTargetsOfAnEpollAreReadAsTheKernelWritesThem(t *testing.T) {
	const text = "pos:\t0\nflags:\t02\nmnt_id:\t16\nino:\t2\n" +
		"tfd:        5 events:       19 data: ffffffff00000005  pos:0 ino:1f2e sdev:8\n" +
		"tfd:        6 events: 80000004 data:                6  pos:0 ino:1f2f sdev:8\n" +
		"tfd:      700 events: 80002005 data:                7  pos:12 ino:a sdev:10\n" +
		"tfd:        8 events:       19 data: 8\n" + "tfd: x events: 1 ino:1 sdev:8\n"
	want := "[{5 7982 8} {700 10 10}]"
	if got := fmt.Sprint(targets(text)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func FuzzSyscallLines(f *testing.F) {
	f.Add("running\n")
	f.Add("-1 0x7ffc 0x7f\n")
	f.Add("43 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffc 0x7f\n")
	f.Add("7 0x10 0xffffffffffffffff 0x0 0x0 0x0 0x0 0x7ffc 0x7f\n")
	f.Add("23 0xffffffff 0x10 0x0 0x0 0x0 0x0 0x7ffc 0x7f\n")
	f.Fuzz(func(t *testing.T, line string) {
		if fds := waitsOn("/proc/self/mem", line); len(fds) > 0 && len(strings.Fields(line)) < 7 {
			t.Errorf("%q waits on %d", line, fds)
		}
		for _, at := range targets(line) {
			again := targets(fmt.Sprintf("tfd: %8d events: %8x data: %16x  pos:0 ino:%x sdev:%s\n", at.number, 1, at.number,
				at.inode, at.device))
			if len(again) != 1 || again[0] != at {
				t.Errorf("%+v became %+v", at, again)
			}
		}
	})
}

package ready

import (
	"os"
	"strings"
	"testing"
)

func TestAcceptOfASocketThatIsNotThereFailsAtOnce(t *testing.T) {
	k, err := newKernelView([]int{1 << 20}, false)
	if err == nil {
		t.Errorf("there is a view %v", k)
	}
}

func TestThreadThatHasSleptMeanwhileHasNotRunSinceTheLastLook(t *testing.T) {
	before := runnable{"7": "3", "8": "0"}
	for _, c := range []struct {
		now runnable
		ran bool
	}{
		{nil, false},
		{runnable{"7": "3"}, true},
		{runnable{"7": "4"}, false},
		{runnable{"9": "0"}, false},
		{runnable{"7": "4", "8": "0"}, true},
	} {
		if ran := c.now.since(before); ran != c.ran {
			t.Errorf("%v after %v: %t", c.now, before, ran)
		}
	}
}

func FuzzSyscallLines(f *testing.F) {
	f.Add("running\n")
	f.Add("-1 0x7ffc 0x7f\n")
	f.Add("43 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffc 0x7f\n")
	f.Add("7 0x10 0xffffffffffffffff 0x0 0x0 0x0 0x0 0x7ffc 0x7f\n")
	f.Add("23 0xffffffff 0x10 0x0 0x0 0x0 0x0 0x7ffc 0x7f\n")
	f.Fuzz(func(t *testing.T, line string) {
		if fds := waitsOn(os.Getpid(), line); len(fds) > 0 && len(strings.Fields(line)) < 7 {
			t.Errorf("%q waits on %d", line, fds)
		}
	})
}

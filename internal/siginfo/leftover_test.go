package siginfo

import (
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
)

func TestMain(m *testing.M) {
	os.Exit(leftover.Run(func() int {
		defer end()
		return m.Run()
	}))
}

// end closes what a Catcher has, which lives as long as its process otherwise.
func end() {
	if c, err := catcher(); err == nil {
		for sig := range queues {
			Ignore.Set(sig)
		}
		unix.Close(int(atomic.SwapUint32(&pipe, 0)))
		c.read.Close()
	}
}

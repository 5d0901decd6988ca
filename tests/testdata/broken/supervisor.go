package supervisor

import (
	"os"
	"strconv"
	"syscall"
)

// raise sends this process the signal whose number is in RAISE.
func raise() {
	if n, err := strconv.Atoi(os.Getenv("RAISE")); err == nil {
		syscall.Kill(os.Getpid(), syscall.Signal(n))
	}
}

// unable panics where the way is "taking", as a new binary might that does not know what a worker has.
func unable() {
	if text, _ := os.ReadFile(os.Getenv("BROKEN")); string(text) == "taking\n" {
		panic("on the way")
	}
}

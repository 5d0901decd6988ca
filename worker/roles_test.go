package worker

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysSignal(n int) syscall.Signal { return syscall.Signal(n) }

// play runs this binary as a worker.
func play(name string) int {
	switch name {
	case "notify": // sends each argument in TEST_MESSAGES, split at "|", as a datagram
		for _, m := range strings.Split(os.Getenv("TEST_MESSAGES"), "|") {
			sendTo(os.Getenv("NOTIFY_SOCKET"), []byte(strings.ReplaceAll(m, ";", "\n")))
		}
		return 0
	case "flood":
		for range 20_000 {
			sendTo(os.Getenv("NOTIFY_SOCKET"), []byte("STATUS=busy\nWATCHDOG=1\nREADY=1"))
		}
		sendTo(os.Getenv("NOTIFY_SOCKET"), []byte("STATUS=done"))
		return 0
	case "foreign": // another process sends first, then the worker
		sendTo(os.Getenv("TEST_SOCKET"), []byte("STATUS=forged"))
		return 0
	}
	fmt.Fprintln(os.Stderr, "no such role:", name)
	return 2
}

// sendTo sends a datagram, with descriptors.
func sendTo(path string, data []byte, fds ...int) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(fd, data, control, &unix.SockaddrUnix{Name: path}, 0)
}

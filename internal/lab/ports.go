package lab

import (
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Reserve returns a TCP address that the kernel gives to no other process until the end of the test, but on which supervisord can
// listen: the port is bound, and another socket may bind to the same one, because both have SO_REUSEADDR and this one does not
// listen.
func Reserve(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	Must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	Must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	Must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := unix.Getsockname(fd)
	Must(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*unix.SockaddrInet4).Port))
}

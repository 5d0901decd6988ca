// Package netns makes sockets in the network namespaces of other processes.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dial returns a dialer for a numeric TCP address, or "udp:" and one of UDP, that connects from a network namespace. A
// socket stays in the namespace in which it was created, so the thread goes home before it connects.
func Dial(space *os.File, address string) func(context.Context) (net.Conn, error) {
	network := "tcp4"
	if at, is := strings.CutPrefix(address, "udp:"); is {
		network, address = "udp4", at
	}
	return func(ctx context.Context) (net.Conn, error) {
		home, err := Enter(space)
		if err != nil {
			return nil, err
		}
		defer home()
		dialer := net.Dialer{Control: func(string, string, syscall.RawConn) error { return home() }}
		return dialer.DialContext(ctx, network, address)
	}
}

// Enter takes this thread into a network namespace. home takes it back; a second call does nothing.
func Enter(space *os.File) (home func() error, err error) {
	runtime.LockOSThread()
	from, err := os.Open("/proc/thread-self/ns/net")
	if err == nil {
		err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return nil, errors.Join(fmt.Errorf("cannot enter the network namespace: %w", err), from.Close())
	}
	over := false
	return func() error {
		if over {
			return nil
		}
		over = true
		defer from.Close()
		if err := unix.Setns(int(from.Fd()), unix.CLONE_NEWNET); err != nil {
			return err // the thread stays locked, and ends with its goroutine
		}
		runtime.UnlockOSThread()
		return nil
	}, nil
}

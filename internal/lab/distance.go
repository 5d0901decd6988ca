package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Addresses of the two ends of a Distance.
const (
	nearEnd = "10.77.0.1"
	FarEnd  = "10.77.0.2"
)

// Distance is two network namespaces with a long way between them: every packet goes through this process, which holds it back for half
// a round trip. Handshakes, delayed acknowledgements and retransmissions are the kernel's, as on a real network. (A netem qdisc
// would do the same where the kernel has it.)
type Distance struct {
	far  string // name of the namespace
	near *os.File
}

var distances atomic.Int64

// Apart makes two namespaces that are roundTrip apart, until the end of the test. It skips the test where that is impossible.
func Apart(t testing.TB, roundTrip time.Duration) *Distance {
	t.Helper()
	NeedRoot(t, "make network namespaces")
	Need(t, "ip")
	name := fmt.Sprintf("sv%d.%d", os.Getpid(), distances.Add(1))
	var ends [2]*os.File
	var spaces [2]*os.File
	for i, address := range []string{nearEnd, FarEnd} {
		space := fmt.Sprintf("%s.%d", name, i)
		if out, err := exec.Command("ip", "netns", "add", space).CombinedOutput(); err != nil {
			t.Skipf("no network namespace can be made here: %v: %s", err, out)
		}
		t.Cleanup(func() { exec.Command("ip", "netns", "del", space).Run() })
		var err error
		spaces[i], err = os.Open("/run/netns/" + space)
		Must(t, err)
		t.Cleanup(func() { spaces[i].Close() })
		ends[i], err = tunnelEnd(spaces[i])
		if err != nil {
			t.Skipf("no TUN device can be made here: %v", err)
		}
		t.Cleanup(func() { ends[i].Close() })
		for _, words := range []string{"link set lo up", "addr add " + address + "/24 dev tun0", "link set tun0 mtu 9000 txqueuelen 10000 up"} {
			out, err := exec.Command("ip", append([]string{"-n", space}, strings.Fields(words)...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("ip %s: %v: %s", words, err, out)
			}
		}
	}
	go carry(ends[0], ends[1], roundTrip/2)
	go carry(ends[1], ends[0], roundTrip/2)
	return &Distance{far: name + ".1", near: spaces[0]}
}

// Via is the command that executes another one at the far end.
func (d *Distance) Via() []string { return []string{"ip", "netns", "exec", d.far} }

// Dial connects from the near end.
func (d *Distance) Dial(address string) func(context.Context) (net.Conn, error) {
	return DialIn(d.near, address)
}

// DialIn returns a dialer for a numeric TCP address that connects from a network namespace. A socket stays in the namespace in which
// it was created, so the thread goes home before it connects.
func DialIn(space *os.File, address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		home, err := enter(space)
		if err != nil {
			return nil, err
		}
		defer home()
		dialer := net.Dialer{Control: func(string, string, syscall.RawConn) error { return home() }}
		return dialer.DialContext(ctx, "tcp4", address)
	}
}

// enter takes this thread into a network namespace. home takes it back; a second call does nothing.
func enter(space *os.File) (home func() error, err error) {
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

// tunnelEnd makes the device tun0 in a namespace.
func tunnelEnd(space *os.File) (*os.File, error) {
	home, err := enter(space)
	if err != nil {
		return nil, err
	}
	defer home()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq("tun0")
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "tun0"), nil
}

// carry takes packets from one end to the other, each delay after it came, until an end is closed.
func carry(from, to *os.File, delay time.Duration) {
	type packet struct {
		due   time.Time
		bytes []byte
	}
	queue := make(chan packet, 1<<16)
	defer close(queue)
	go func() {
		for p := range queue {
			time.Sleep(time.Until(p.due))
			to.Write(p.bytes) //nolint:errcheck // a network may lose a packet
		}
	}()
	for {
		bytes := make([]byte, 9100)
		n, err := from.Read(bytes)
		if err != nil {
			return
		}
		queue <- packet{time.Now().Add(delay), bytes[:n]}
	}
}

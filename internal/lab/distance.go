package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/netns"
)

// Addresses of the two ends of a Distance.
const (
	nearEnd = "10.77.0.1"
	FarEnd  = "10.77.0.2"
)

// Distance is two network namespaces with a long way between them: every packet goes through this process, which holds
// it back for half a round trip. Handshakes, delayed acknowledgements and retransmissions are the kernel's, as on a
// real network. (A netem qdisc would do the same where the kernel has it.)
type Distance struct {
	far  string // name of the namespace
	near *os.File
}

var distances atomic.Int64

// Apart makes two namespaces that are roundTrip apart, until the end of the test. It skips the test where that is
// impossible.
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
		for _, words := range []string{"link set lo up", "addr add " + address + "/24 dev tun0",
			"link set tun0 mtu 9000 txqueuelen 10000 up"} {
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
	return netns.Dial(d.near, address)
}

// tunnelEnd makes the device tun0 in a namespace.
func tunnelEnd(space *os.File) (*os.File, error) {
	home, err := netns.Enter(space)
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

package holder

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/proc"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// listen listens at an address, until the test ends.
func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l := must.Get(net.Listen("tcp4", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

func TestFindReturnsTheProcessWithTheAddress(t *testing.T) {
	if pid := find("tcp", netip.MustParseAddrPort(listen(t).Addr().String())); pid != os.Getpid() {
		t.Errorf("the holder is %d", pid)
	}
}

func TestEldestIsTheParentThatPassedTheSocketOn(t *testing.T) {
	f := must.Get(listen(t).File())(t)
	defer func() { _ = f.Close() }()
	child := exec.Command("sleep", "100")
	child.ExtraFiles = []*os.File{f}
	must.Do(t, child.Start())
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	link := must.Get(os.Readlink(proc.Path(child.Process.Pid, "fd/3")))(t)
	if pid := eldest(child.Process.Pid, map[string]bool{link: true}); pid != os.Getpid() {
		t.Errorf("the eldest holder is %d, this is %d and its child %d", pid, os.Getpid(), child.Process.Pid)
	}
}

func TestOfNamesAnotherProcessOrHowRootFindsIt(t *testing.T) {
	f := must.Get(listen(t).File())(t)
	defer func() { _ = f.Close() }()
	inode, _ := proc.SocketInode(must.Get(os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())))(t))
	if got := Of(inode); !strings.Contains(got, "`ss -lnp` as root") {
		t.Errorf("of a socket that only this process has: %q", got)
	}
	child := exec.Command("sleep", "100")
	child.ExtraFiles = []*os.File{f}
	must.Do(t, child.Start())
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	if got, want := Of(inode), Name(child.Process.Pid); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProcAddressIsReadInEveryForm(t *testing.T) {
	for text, address := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"00000000000000000000000001000000:0050": "[::1]:80",
		"0000000000000000FFFF00000100007F:0050": "127.0.0.1:80",
	} {
		if got, ok := parse(text); !ok || got != netip.MustParseAddrPort(address) {
			t.Errorf("%s is %s", text, got)
		}
	}
	for _, text := range []string{"", ":", "0100007F", "0100007F:x", "0100007:1", "zzzzzzzz:1"} {
		if _, ok := parse(text); ok {
			t.Errorf("%q was read", text)
		}
	}
}

// A listening socket in /proc/net/tcp is found by its own address and by one of all addresses, whatever else its line
// says.
func FuzzAddressTables(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1}, uint16(80), "00000000:00000000 00:00000000 00000000 1000 0 4711 1 0",
		"0: 0100007F:1F90 00000000:0000 0A 0 0 0 0 0 12 1")
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, uint16(65535), "0 0 0 0 0 9", "0: 1 2 3")
	f.Fuzz(func(t *testing.T, host []byte, port uint16, rest, line string) {
		if inode, ok := overlapping(line, netip.AddrPortFrom(netip.IPv6Unspecified(), port)); ok && inode == "" {
			t.Errorf("%q is a socket without an inode", line)
		}
		ip, ok := netip.AddrFromSlice(host)
		if !ok {
			return
		}
		text := ""
		for data := host; len(data) > 0; data = data[4:] {
			text += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(data))
		}
		at := netip.AddrPortFrom(ip.Unmap(), port)
		if got, ok := parse(fmt.Sprintf("%s:%04X", text, port)); !ok || got != at {
			t.Fatalf("%v is read as %v, %v", at, got, ok)
		}
		line = fmt.Sprintf("   0: %s:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 4711 %s", text, port,
			rest)
		for _, other := range []netip.Addr{at.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			if inode, ok := overlapping(line, netip.AddrPortFrom(other, port)); !ok || inode != "4711" {
				t.Errorf("%q is not at %v: %q", line, other, inode)
			}
		}
		if _, ok := overlapping(line, netip.AddrPortFrom(at.Addr(), port+1)); ok {
			t.Errorf("%q is at another port, too", line)
		}
	})
}

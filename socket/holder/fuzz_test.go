package holder

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
)

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

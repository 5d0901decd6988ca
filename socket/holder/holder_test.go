package holder

import (
	"net"
	"net/netip"
	"os"
	"testing"
)

func TestFindReturnsTheProcessWithTheAddress(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if pid := Find("tcp", netip.MustParseAddrPort(l.Addr().String())); pid != os.Getpid() {
		t.Errorf("the holder is %d", pid)
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

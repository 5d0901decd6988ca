package holder

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/proc"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// listen listens at an address, until the test ends.
func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

func TestFindReturnsTheProcessWithTheAddress(t *testing.T) {
	if pid := find("tcp", netip.MustParseAddrPort(listen(t).Addr().String())); pid != os.Getpid() {
		t.Errorf("the holder is %d", pid)
	}
}

func TestEldestIsTheParentThatPassedTheSocketOn(t *testing.T) {
	f, err := listen(t).File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	child := exec.Command("sleep", "100")
	child.ExtraFiles = []*os.File{f}
	must.Do(t, child.Start())
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	link, err := os.Readlink(proc.Path(child.Process.Pid, "fd/3"))
	if err != nil {
		t.Fatal(err)
	}
	if pid := eldest(child.Process.Pid, map[string]bool{link: true}); pid != os.Getpid() {
		t.Errorf("the eldest holder is %d, this is %d and its child %d", pid, os.Getpid(), child.Process.Pid)
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

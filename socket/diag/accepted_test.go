package diag

import (
	"net"
	"path/filepath"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

func TestConnectionIsAcceptedWhenAProcessHasTakenIt(t *testing.T) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	for _, at := range [][2]string{
		{"tcp", "127.0.0.1:0"}, {"tcp", "[::1]:0"}, {"tcp", ":0"}, {"unix", filepath.Join(t.TempDir(), "s")}, {"unix",
			"@" + t.Name()},
	} {
		t.Run(at[0]+" "+at[1], func(t *testing.T) {
			ln, err := lc.Listen(t.Context(), at[0], at[1])
			if err != nil {
				t.Skip(err)
			}
			defer ln.Close()
			to := ln.Addr().String()
			if at[1] == ":0" {
				_, port, _ := net.SplitHostPort(to)
				to = "127.0.0.1:" + port // an IPv4 client of an IPv6 socket
			}
			for range 3 {
				c := must.Get(net.Dial(at[0], to))(t)
				defer c.Close()
				if accepted, err := Accepted(c); accepted || err != nil {
					t.Errorf("in the queue: %v, %v", accepted, err)
				}
				taken := must.Get(ln.Accept())(t)
				defer taken.Close()
				if accepted, err := Accepted(c); !accepted || err != nil {
					t.Errorf("taken: %v, %v", accepted, err)
				}
			}
		})
	}
}

func TestSocketAtAPathSaysToWhichFileItWasBound(t *testing.T) {
	if number, err := BoundTo(open(t, "unix "+filepath.Join(t.TempDir(), "s"), 0).inode); err != nil || number == 0 {
		t.Errorf("file %d: %v", number, err)
	}
	if number, err := BoundTo(open(t, "unix ", 0).inode); err == nil {
		t.Errorf("a socket without a path is bound to file %d", number)
	}
}

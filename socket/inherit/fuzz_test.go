package inherit_test

import (
	"strings"
	"testing"

	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/socket/inherit"
)

func FuzzEnvironmentRoundTrip(f *testing.F) {
	f.Add("http", "127.0.0.1:80", "", "unix:/run/a b")
	f.Add("a:b", "[::1]:80", "x;y", "udp::53")
	f.Add("=", "unix:@x", "\n", "unix:/a/b")
	f.Fuzz(func(t *testing.T, name1, address1, name2, address2 string) {
		a, err1 := socket.ParseAddress(address1)
		b, err2 := socket.ParseAddress(address2)
		if err1 != nil || err2 != nil {
			return
		}
		sockets := []dialect.Passed{{Name: name1, Address: a, FD: 3}, {Name: name2, Address: b, FD: 4}}
		environ := append(dialect.Message{Sockets: sockets}.Environment(), "LISTEN_PID=7")
		for _, v := range environ {
			if strings.Count(v, "\n") > 0 {
				t.Fatalf("%q is corrupt", v)
			}
		}
		found, err := inherit.Parse(environ, 7)
		if err != nil || len(found) != 2 {
			t.Fatalf("%q: %v, %v", environ, found, err)
		}
		for i, s := range sockets {
			want := inherit.Socket{FD: s.FD, Name: inherit.FDName(s.Name), Starter: s.Address.StarterName()}
			if found[i] != want {
				t.Errorf("%q: found %+v, want %+v", environ, found[i], want)
			}
		}
	})
}

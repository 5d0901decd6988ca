package diag

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

func TestConnectionOfAUnixSocketIsInHandWhileBothEndsAreOpen(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "s"), "@" + t.Name()} {
		ln := must.Get(net.Listen("unix", name))(t)
		t.Cleanup(func() { ln.Close() })
		client := must.Get(net.Dial("unix", name))(t)
		t.Cleanup(func() { client.Close() })
		held := map[uint64]bool{}
		check := func(what string, want InHand) {
			t.Helper()
			var l InHand
			if err := l.AddUnix([]string{"another", name}, held); err != nil || l != want {
				t.Errorf("%s: %+v, %v", what, l, err)
			}
		}
		check("nobody has accepted it", InHand{})
		server := must.Get(ln.Accept())(t)
		t.Cleanup(func() { server.Close() })
		check("another process has", InHand{})
		held[inodeOf(t, fdOf(t, server))] = true
		check("accepted", InHand{Active: 1})
		must.Get(client.Write([]byte("request")))(t)
		check("with a request", InHand{Unread: 1})
		must.Get(server.Read(make([]byte, 100)))(t)
		check("that was read", InHand{Active: 1})
		client.Close()
		check("whose client is gone", InHand{})
	}
}

// receiving returns a UDP socket, and sends to it.
func receiving(t *testing.T) (fd int, send func()) {
	t.Helper()
	fd = must.Get(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { unix.Close(fd) })
	must.Do(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at := must.Get(unix.Getsockname(fd))(t)
	return fd, func() {
		must.Do(t, unix.Sendto(fd, []byte("hello"), 0, at))
	}
}

func TestSocketOfUDPIsInHandUntilItIsReadAndItsProcessesSleep(t *testing.T) {
	fd, send := receiving(t)
	w := NewWatch([]Target{{Receives: []int{fd}}}, time.Hour)
	look := func(age time.Duration, naps ...string) (l InHand) {
		w.Sleeping(func() (map[string]string, bool) {
			if naps[0] == "runs" {
				return nil, false
			}
			of := map[string]string{"1": naps[0]}
			naps = append(naps[1:], naps[0])
			return of, true
		})
		w.receive(&l, w.began.Add(age))
		return l
	}
	send()
	if l := look(time.Minute, "7"); l.Unread != 1 || l.Active != 0 {
		t.Errorf("a datagram waits: %+v", l)
	}
	if _, _, err := unix.Recvfrom(fd, make([]byte, 8), 0); err != nil {
		t.Fatal(err)
	}
	if l := look(time.Minute+answerTime-1, "7"); l.Unread != 0 || l.Active != 1 || l.Silent != 1 {
		t.Errorf("its answer may come from another server: %+v", l)
	}
	if l := look(time.Minute+answerTime, "7", "8"); l.Active != 1 {
		t.Errorf("the thread has run meanwhile: %+v", l)
	}
	if l := look(time.Minute+answerTime, "7"); !l.Quiet() {
		t.Errorf("all threads sleep: %+v", l)
	}
	if l := look(time.Minute+time.Hour-1, "runs"); l.Active != 1 || l.Silent != 1 {
		t.Errorf("a thread runs: %+v", l)
	}
	if l := look(time.Minute+time.Hour, "runs"); !l.Quiet() {
		t.Errorf("nothing has come for the time of silence: %+v", l)
	}
}

func TestWhatWasShutDownIsReadToItsEnd(t *testing.T) {
	fd, send := receiving(t)
	send()
	if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != unix.ENOTCONN { // and yet it is done
		t.Fatal(err)
	}
	if !Waits(fd) {
		t.Error("the datagram that came before is overlooked")
	}
	if n, _, err := unix.Recvfrom(fd, make([]byte, 8), 0); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	if Waits(fd) {
		t.Error("the end of UDP is taken for a datagram")
	}
	path := filepath.Join(t.TempDir(), "s")
	ln := open(t, "unix "+path, 0)
	client := must.Get(net.Dial("unix", path))(t)
	defer client.Close()
	must.Do(t, unix.Shutdown(ln.fd, unix.SHUT_RDWR))
	if !Waits(ln.fd) {
		t.Error("the connection that waits is overlooked")
	}
	taken, _, err := unix.Accept(ln.fd)
	must.Do(t, err)
	defer unix.Close(taken)
	if Waits(ln.fd) {
		t.Error("the end of a unix socket is taken for a connection")
	}
	tcp := open(t, "tcp 127.0.0.1:0", 0)
	must.Do(t, unix.Shutdown(tcp.fd, unix.SHUT_RDWR))
	if Waits(tcp.fd) {
		t.Error("the end of a TCP socket is taken for a connection")
	}
}

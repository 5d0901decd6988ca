package socket

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// migrating runs f in a network namespace with net.ipv4.tcp_migrate_req: what waits in a socket that ends
// listening, or is in a handshake with it, moves to any socket of its group, whatever the program says.
func migrating(t *testing.T, f func()) {
	needRoot(t)
	var err error
	onThreadOfItsOwn(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			err = errors.Join(loopbackUp(), os.WriteFile("/proc/sys/net/ipv4/tcp_migrate_req", []byte("1"), 0))
		}
		if err == nil {
			f()
		}
	})
	if err != nil {
		t.Skip("Linux 5.14 and a network namespace are needed: ", err)
	}
}

// onThreadOfItsOwn runs f in a thread that ends with it, and never in the main one: /proc/self shows that one's
// network namespace.
func onThreadOfItsOwn(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		onThreadOfItsOwn(f)
		runtime.UnlockOSThread()
	}()
	<-done
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// waitingClients connects so many clients that have sent a request, and as many whose handshake is deferred.
func waitingClients(t *testing.T, table *Table, w Want, n int) (clients []int) {
	t.Helper()
	for i := range 2 * n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		to, _ := (bindAddr{network: "tcp", ip: w.at.ip, port: table.listeners[w.Key()].port()}).sockaddr()
		if err := unix.Connect(fd, to); err != nil {
			t.Fatal(err)
		}
		if clients = append(clients, fd); i < n {
			request(fd)
		}
	}
	return clients
}

func request(fd int) { _, _ = unix.Write(fd, []byte("request")) } // it may be reset already

// ended counts the clients that were reset, or whose connection was closed.
func ended(t *testing.T, clients []int) (n int) {
	t.Helper()
	for _, fd := range clients {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if _, err := unix.Poll(fds, 0); err != nil {
			t.Fatal(err)
		}
		n += number(fds[0].Revents != 0)
	}
	return n
}

// TestNoClientWaitsInVainWhereTheKernelMigratesConnections ends listening in each way while clients wait.
func TestNoClientWaitsInVainWhereTheKernelMigratesConnections(t *testing.T) {
	const n = 10
	for what, end := range map[string]func(t *testing.T, table *Table, w Want, serving []*Lane){
		"a worker shuts its socket down": func(t *testing.T, table *Table, w Want, serving []*Lane) {
			shutDown(t, table, serving, 1)
			if revived, err := table.Revive(w.Key()); !revived || err != nil {
				t.Errorf("revived: %v, %v", revived, err)
			}
		},
		"during a pause": func(t *testing.T, table *Table, w Want, serving []*Lane) {
			if err := table.Pause([]string{w.Key()}, true); err != nil {
				t.Fatal(err)
			}
			shutDown(t, table, serving, 1)
			if revived, err := table.Revive(w.Key()); !revived || err != nil {
				t.Errorf("revived: %v, %v", revived, err)
			}
		},
		"the listener closes": func(t *testing.T, table *Table, w Want, _ []*Lane) {
			if _, err := table.SetOpen(w.Key(), false); err != nil {
				t.Error(err)
			}
		},
		"the generations share from now on": func(t *testing.T, table *Table, w Want, serving []*Lane) {
			w.Handover = Share
			apply(t, table, w)
			next := held(t, table, w)
			mustServe(t, table, next)
			table.Release(serving)
		},
	} {
		t.Run(what, func(t *testing.T) {
			migrating(t, func() {
				table, w := steered(t, Spec{Address: addr("127.0.0.1:0"), TCPOptions: TCPOptions{DeferAccept: 30 * time.Second}})
				gone, draining := serves(t, table, w), serves(t, table, w)
				serving := serves(t, table, w)
				table.Release(gone)
				clients := waitingClients(t, table, w, n)
				end(t, table, w, serving)
				for _, fd := range clients[n:] {
					request(fd)
				}
				_ = table.Pause([]string{w.Key()}, false)
				emptied(t, table)
				waiting := 0
				for _, ln := range table.listeners[w.Key()].lanes {
					for _, m := range ln.slots {
						waiting += m.queued()
					}
				}
				if waiting == 0 && strings.HasPrefix(what, "a worker") {
					t.Error("the kernel has moved no client")
				}
				if over := ended(t, clients); over+waiting != len(clients) {
					t.Errorf("of %d clients, %d wait where somebody accepts, and %d know that they have to connect again",
						len(clients), waiting, over)
				}
				table.Release(draining)
			})
		})
	}
}

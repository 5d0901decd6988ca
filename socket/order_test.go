package socket

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/inherit"
)

// keeper is a process that has sockets, as a worker has.
type keeper struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	pidfd int
}

func keep(t testing.TB, fds ...int) *keeper {
	t.Helper()
	k := &keeper{cmd: exec.Command("cat")}
	for _, fd := range fds {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(own), "socket")
		defer func() { _ = f.Close() }()
		k.cmd.ExtraFiles = append(k.cmd.ExtraFiles, f)
	}
	var err error
	if k.stdin, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.end)
	if k.pidfd, err = unix.PidfdOpen(k.cmd.Process.Pid, 0); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *keeper) end() {
	if k.stdin != nil {
		_, _ = k.stdin.Close(), k.cmd.Wait()
		_ = unix.Close(k.pidfd)
		k.stdin = nil
	}
}

// orphan takes one of the sockets out of the process, as the next supervisor does.
func (k *keeper) orphan(t testing.TB, i int) inherit.Socket {
	t.Helper()
	fd, err := unix.PidfdGetfd(k.pidfd, 3+i, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := inherit.Examine(fd, "orphan")
	if err != nil {
		t.Fatal(err)
	}
	s.Ours, s.InUse = true, true
	return s
}

// die closes the descriptors of a table as the kernel does for a process that ends.
func die(table *Table) {
	for _, l := range table.listeners {
		for _, m := range l.members {
			_ = unix.Close(m.fd)
		}
	}
	*table = *NewTable()
}

// checkIndexes steers to each member and checks that connections arrive there.
func checkIndexes(t testing.TB, table *Table, key string) {
	t.Helper()
	l := table.listeners[key]
	before := l.serving
	for _, m := range l.members {
		l.serving = serveAll([]*sock{m})
		if err := l.apply(); err != nil {
			t.Fatal(err)
		}
		if got := arrivals(t, l.reachedAt().String(), 8, table.FDs(key)...); got[m.fd] != 8 {
			t.Errorf("steered to member %d, connections reached %v", m.number, got)
		}
	}
	l.serving = before
	if err := l.apply(); err != nil {
		t.Fatal(err)
	}
}

// survivors lists the sets of lanes whose workers live, of so many lanes.
func survivors(lanes int) (sets [][]int) {
	for bits := 1; bits < 1<<lanes; bits++ {
		var set []int
		for i := range lanes {
			if bits>>i&1 == 1 {
				set = append(set, i)
			}
		}
		sets = append(sets, set)
	}
	return sets
}

func TestDeathWithoutAStoreLeavesTrafficWhereItWas(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::]:0"} {
		for serving := range 4 {
			for _, live := range survivors(4) {
				t.Run(fmt.Sprintf("%s/%d serves/%v live", address, serving, live), func(t *testing.T) {
					death(t, address, serving, live)
				})
			}
		}
	}
}

func death(t *testing.T, address string, serving int, live []int) {
	if address[0] == '[' {
		needIPv6(t)
	}
	before, w := steered(t, Spec{Address: addr(address)})
	var lanes [][]*Lane
	for range 4 {
		lanes = append(lanes, held(t, before, w))
	}
	mustServe(t, before, lanes[serving])
	w.Address = addr(before.listeners[w.Key()].reachedAt().String())
	if address[0] == '[' {
		w.Address = addr(fmt.Sprintf("[::]:%d", w.Address.Port))
	}
	var keepers []*keeper
	var inodes []uint64
	for _, i := range live {
		fd := lanes[i][0].FD(0)
		keepers, inodes = append(keepers, keep(t, fd)), append(inodes, inodeOf(t, fd))
	}
	die(before)

	table := newTable(t)
	var offers []inherit.Socket
	for _, k := range slices.Backward(keepers) {
		offers = append(offers, k.orphan(t, 0))
	}
	table.Offer(offers)
	w = want(t, w.Spec)
	apply(t, table, w)
	if left := table.Unclaimed(); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	for _, o := range offers {
		if readable(t, o.FD, 0) {
			t.Error("the question left a connection in a queue")
		}
		if mss := option(t, o.FD, unix.IPPROTO_TCP, unix.TCP_MAXSEG); mss >= markBase ||
			option(t, o.FD, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT) != 0 {
			t.Errorf("a socket is marked: %d", mss)
		}
	}
	checkIndexes(t, table, w.Key())
	next := held(t, table, w)
	mustServe(t, table, next)
	if got := arrivals(t, table.listeners[w.Key()].reachedAt().String(), 20,
		table.FDs(w.Key())...); got[next[0].FD(0)] != 20 || slices.Contains(inodes, inodeOf(t, next[0].FD(0))) {
		t.Errorf("the new generation has the socket %d, and connections reach %v", next[0].FD(0), got)
	}
	left := table.LeftOf(inodes)
	if len(left) != 1 || len(left[0].Queues) != len(live) {
		t.Errorf("left of the orphans: %v", left)
	}
	table.OrphansGone()
	if again := held(t, table, w); !slices.Contains(inodes, inodeOf(t, again[0].FD(0))) ||
		len(table.LeftOf(inodes)) != 0 {
		t.Error("the sockets of the orphans are not used again")
	}
}

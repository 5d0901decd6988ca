package socket

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/inherit"
)

// together returns a want whose workers all serve at once.
func together(t testing.TB, s Spec) Want {
	w := want(t, s)
	w.Together = true
	return w
}

// canBind reports whether another process can listen at the address, with or without SO_REUSEPORT.
func canBind(t testing.TB, address string, shared bool) bool {
	t.Helper()
	at := addrPort(t, address)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, number(shared))
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil && !errors.Is(err, unix.EADDRINUSE) {
		t.Fatal(err)
	}
	return err == nil
}

// arrive makes connections and checks that all arrive at one socket.
func arrive(t testing.TB, table *Table, claim string, n int) {
	t.Helper()
	fd := table.FD(claim, 0)
	for range n {
		conn, err := net.Dial("tcp", table.Address(claim))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = unix.Close(accepted(t, fd))
	}
}

func TestReusePortChangesInPlace(t *testing.T) {
	spec := Spec{Name: "web", Address: addr("127.0.0.1:0")}
	table, w, fd := opened(t, spec)
	address := table.Address(w.Key())
	if canBind(t, address, true) {
		t.Error("the socket is shared too early")
	}
	w.ReusePort = true
	apply(t, table, w)
	if table.FD(w.Key(), 0) != fd || !canBind(t, address, true) || canBind(t, address, false) {
		t.Error("the socket is not shared, or another process can bind it without SO_REUSEPORT")
	}
	w.ReusePort = false
	apply(t, table, w)
	if table.FD(w.Key(), 0) != fd || option(t, fd, unix.SOL_SOCKET, unix.SO_REUSEPORT) != 0 || canBind(t, address, false) {
		t.Error("the socket is still shared")
	}
	arrive(t, table, w.Key(), 5)
}

// TestReusePortGetsAllConnectionsWhileEarlierSocketsAreOpen changes a listener whose generations have sockets of their own.
func TestReusePortGetsAllConnectionsWhileEarlierSocketsAreOpen(t *testing.T) {
	table := newTable(t)
	w := want(t, Spec{Name: "web", Address: addr("127.0.0.1:0"), PerSlot: true})
	w.Slots = 2
	apply(t, table, w)
	old := claimed(t, table, []string{w.Key()})
	if err := serve(table, old); err != nil {
		t.Fatal(err)
	}
	w.PerSlot, w.ReusePort = false, true
	apply(t, table, w)
	next := claimed(t, table, []string{w.Key()})
	if err := serve(table, next); err != nil {
		t.Fatal(err)
	}
	arrive(t, table, next[0], 50)
	table.Release(old)
	arrive(t, table, next[0], 50)
	if n := len(table.Export()); n != 1 {
		t.Errorf("%d sockets are open", n)
	}
	stranger, err := (&net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (failed error) {
		return errors.Join(c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }), failed)
	}}).Listen(t.Context(), "tcp", table.Address(w.Key()))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	got := make(chan bool, 1)
	go func() {
		c, err := stranger.Accept()
		if err == nil {
			c.Close()
		}
		got <- err == nil
	}()
	for range 50 {
		dial(t, "tcp", table.Address(w.Key())).Close()
	}
	select {
	case <-got:
	case <-time.After(10 * time.Second):
		t.Error("another process gets no connection")
	}
}

func TestChangesOfPerSlotLoseNoConnection(t *testing.T) {
	table := newTable(t)
	w := want(t, Spec{Name: "web", Address: addr("127.0.0.1:0"), NonBlock: true})
	w.Slots = 3
	apply(t, table, w)
	fd := table.FD(w.Key(), 0)
	claims, serving := generation(t, table, w.Key(), 3)
	end := clients(table.Address(w.Key()), 4)
	for range 6 {
		w.PerSlot = !w.PerSlot
		apply(t, table, w)
		next, trial := generation(t, table, w.Key(), 3)
		time.Sleep(20 * time.Millisecond) // a trial, as long as a worker takes to boot; no event to wait for
		if err := serve(table, next); err != nil {
			t.Fatal(err)
		}
		for _, worker := range serving {
			worker.end()
		}
		table.Release(claims)
		claims, serving = next, trial
		if table.FD(claims[0], 0) != fd || (table.FD(claims[0], 2) != fd) != w.PerSlot {
			t.Fatalf("per_slot %v: slots have %d and %d, the first had %d", w.PerSlot, table.FD(claims[0], 0), table.FD(claims[0], 2), fd)
		}
	}
	answered, lost := end()
	for _, worker := range serving {
		worker.end()
	}
	if lost != 0 || answered < 100 {
		t.Errorf("%d of %d connections were lost", lost, answered+lost)
	}
	if canBind(t, table.Address(w.Key()), false) {
		t.Error("another process can bind the address")
	}
}

func TestGenerationWithoutPerSlotKeepsTheSharedSocket(t *testing.T) {
	table, w, fd := opened(t, Spec{Name: "web", Address: addr("127.0.0.1:0")})
	claims := claimed(t, table, []string{w.Key()})
	w.PerSlot, w.Slots = true, 3
	apply(t, table, w)
	next := claimed(t, table, []string{w.Key()})
	if table.FD(claims[0], 2) != fd || table.FD(next[0], 2) == fd {
		t.Errorf("slot 2 has %d and %d, the shared socket is %d", table.FD(claims[0], 2), table.FD(next[0], 2), fd)
	}
}

func TestNonBlockOpensAnotherLane(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "udp:127.0.0.1:0"} {
		table := newTable(t)
		w := together(t, Spec{Name: "web", Address: addr(address)})
		apply(t, table, w)
		old := claimed(t, table, []string{w.Key()})
		w.NonBlock = true
		apply(t, table, w)
		trial := claimed(t, table, []string{w.Key()})
		a, b := table.FD(old[0], 0), table.FD(trial[0], 0)
		if a == b || isNonBlock(t, a) || !isNonBlock(t, b) || table.Address(old[0]) != table.Address(trial[0]) {
			t.Errorf("%s: sockets %d and %d, at %s and %s", address, a, b, table.Address(old[0]), table.Address(trial[0]))
		}
		if err := serve(table, trial); err != nil {
			t.Fatal(err)
		}
		table.Release(old)
		if isOpen(a) || len(table.Export()) != 1 || option(t, b, unix.SOL_SOCKET, unix.SO_REUSEPORT) != 0 {
			t.Errorf("%s: the old lane is open, or the new one is shared", address)
		}
		_ = table.Close()
	}
}

func isNonBlock(t testing.TB, fd int) bool {
	t.Helper()
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.O_NONBLOCK != 0
}

func TestNewLaneGetsNoConnectionUntilItsGenerationServes(t *testing.T) {
	table := newTable(t)
	w := together(t, Spec{Name: "web", Address: addr("127.0.0.1:0")})
	apply(t, table, w)
	old := claimed(t, table, []string{w.Key()})
	w.NonBlock = true
	apply(t, table, w)
	trial := claimed(t, table, []string{w.Key()})
	arrive(t, table, old[0], 50)
	// The trial fails.
	table.Release(trial)
	if err := serve(table, old); err != nil {
		t.Fatal(err)
	}
	arrive(t, table, old[0], 50)
	// The next trial succeeds.
	trial = claimed(t, table, []string{w.Key()})
	if err := serve(table, trial); err != nil {
		t.Fatal(err)
	}
	arrive(t, table, trial[0], 50)
	if readable(t, table.FD(old[0], 0), 0) {
		t.Error("the old lane got a connection")
	}
	// And back, while the previous lane still exists.
	w.NonBlock = false
	apply(t, table, w)
	back := claimed(t, table, []string{w.Key()})
	if table.FD(back[0], 0) != table.FD(old[0], 0) {
		t.Error("it is a third lane")
	}
	if err := serve(table, back); err != nil {
		t.Fatal(err)
	}
	table.Release(trial)
	arrive(t, table, back[0], 50)
	if n := len(table.Export()); n != 1 {
		t.Errorf("%d sockets are open", n)
	}
}

func TestConfigurationTakenBackClosesTheNewLane(t *testing.T) {
	table := newTable(t)
	w := together(t, Spec{Name: "web", Address: addr("127.0.0.1:0")})
	apply(t, table, w)
	old := claimed(t, table, []string{w.Key()})
	changed := w
	changed.NonBlock = true
	apply(t, table, changed)
	apply(t, table, w)
	if len(table.Export()) != 1 {
		t.Error("it is open")
	}
	arrive(t, table, old[0], 20)
}

func TestFailedUpdateLeavesNoLane(t *testing.T) {
	table := newTable(t)
	w := together(t, Spec{Name: "web", Address: addr("127.0.0.1:0")})
	apply(t, table, w)
	fd := table.FD(w.Key(), 0)
	_, serving := generation(t, table, w.Key(), 1)
	end := clients(table.Address(w.Key()), 4)
	w.NonBlock = true
	bad := want(t, Spec{Address: addr("192.0.2.77:80")})
	for range 50 {
		if err := table.Update([]Want{w, bad}); err == nil {
			t.Error("it did not fail")
		}
		if err := ask(table.Address(w.Key())); err != nil {
			t.Error(err)
		}
	}
	_, lost := end()
	serving[0].end()
	if lost != 0 {
		t.Errorf("%d connections were lost", lost)
	}
	if len(table.Export()) != 1 || option(t, fd, unix.SOL_SOCKET, unix.SO_REUSEPORT) != 0 {
		t.Error("a part of it is left")
	}
}

func TestChangesOfNonblockLoseNoConnection(t *testing.T) {
	table := newTable(t)
	w := together(t, Spec{Name: "web", Address: addr("127.0.0.1:0")})
	apply(t, table, w)
	claims, serving := generation(t, table, w.Key(), 1)
	end := clients(table.Address(w.Key()), 8)
	for i := range 6 {
		w.NonBlock = !w.NonBlock
		apply(t, table, w)
		next, trial := generation(t, table, w.Key(), 1)
		time.Sleep(10 * time.Millisecond) // the trial; no event to wait for
		if i%2 == 1 {                     // fails
			table.Release(next)
			trial[0].end()
			if err := serve(table, claims); err != nil {
				t.Fatal(err)
			}
			w.NonBlock = !w.NonBlock
			continue
		}
		if err := serve(table, next); err != nil {
			t.Fatal(err)
		}
		if len(table.Left(claims, nil)) != 1 || len(table.Left(next, nil)) != 0 {
			t.Errorf("left of the old lane %v, of the new one %v", table.Left(claims, nil), table.Left(next, nil))
		}
		quiet(t, table.Left(claims, nil))
		serving[0].end()
		table.Release(claims)
		claims, serving = next, trial
	}
	answered, lost := end()
	serving[0].end()
	if lost != 0 || answered < 100 {
		t.Errorf("%d of %d connections were lost", lost, answered+lost)
	}
}

func TestNonblockOfAnUnusedSocketChangesInPlace(t *testing.T) {
	path, _ := onDisk(t)
	for _, s := range []Spec{path, {Address: addr("127.0.0.1:0")}, {Address: addr("127.0.0.1:0"), PerSlot: true}, {Address: addr("udp:127.0.0.1:0")}} {
		table, w, fd := opened(t, s)
		w.NonBlock, w.Unused = true, true
		if err := table.Update([]Want{w, want(t, Spec{Address: addr("192.0.2.77:80")})}); err == nil || isNonBlock(t, fd) {
			t.Errorf("%s: error %v, and it is changed", s.Address, err)
		}
		apply(t, table, w)
		if table.FD(w.Key(), 0) != fd || !isNonBlock(t, fd) {
			t.Errorf("%s was not changed", s.Address)
		}
		_ = table.Close()
	}
}

func TestChangesThatTheKernelDoesNotAllowSayTheRemedy(t *testing.T) {
	path, _ := onDisk(t)
	nonBlock := func(w *Want) { w.NonBlock = true }
	for name, c := range map[string]struct {
		spec        Spec
		change      func(*Want)
		key, remedy string
	}{
		"unix":       {path, nonBlock, "nonblock", "stop"},
		"reuse_port": {Spec{Address: addr("127.0.0.1:0"), ReusePort: true}, nonBlock, "nonblock", "stop"},
		"rolling":    {Spec{Address: addr("127.0.0.1:0")}, func(w *Want) { w.NonBlock, w.Together = true, false }, "nonblock", `strategy = "all"`},
		"interface":  {Spec{Address: addr(freePort(t))}, func(w *Want) { w.Interface = "lo" }, "interface", "restart supervisord"},
		"ipv6_only":  {Spec{Address: addr(":0")}, func(w *Want) { w.at.dual = false }, "ipv6_only", "restart supervisord"},
		"address":    {Spec{Address: addr(freePort(t))}, func(w *Want) { w.at.ip = netip.IPv4Unspecified() }, "address", "restart supervisord"},
	} {
		table := newTable(t)
		w := together(t, c.spec)
		apply(t, table, w)
		claimed(t, table, []string{w.Key()})
		before := table.Export()
		c.change(&w)
		err := table.Update([]Want{w})
		change, is := errors.AsType[*ChangeError](err)
		if !is || change.Key != c.key || change.Spec != w.Spec || !strings.Contains(change.Remedy, c.remedy) {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(before, table.Export()) {
			t.Errorf("%s: sockets are %v, not %v", name, table.Export(), before)
		}
		_ = table.Close()
	}
}

func TestPerSlotAndNonblockChangeWhileTwoLanesExist(t *testing.T) {
	table := newTable(t)
	w := together(t, Spec{Name: "web", Address: addr("127.0.0.1:0")})
	apply(t, table, w)
	old := claimed(t, table, []string{w.Key()})
	w.NonBlock = true
	apply(t, table, w)
	w.PerSlot, w.Slots = true, 3
	apply(t, table, w)
	next := claimed(t, table, []string{w.Key()})
	arrive(t, table, old[0], 30)
	if err := serve(table, next); err != nil {
		t.Fatal(err)
	}
	spread(t, table, next[0], 600, 3, 3)
	w.NonBlock = false
	apply(t, table, w)
	last := claimed(t, table, []string{w.Key()})
	if err := serve(table, last); err != nil {
		t.Fatal(err)
	}
	spread(t, table, last[0], 600, 3, 3)
	if readable(t, table.FD(old[0], 0), 0) {
		t.Error("an old lane got a connection")
	}
}

func TestLanesComeBackToTheirGenerations(t *testing.T) {
	before := newTable(t)
	w := together(t, Spec{Name: "web", Address: addr("127.0.0.1:0")})
	apply(t, before, w)
	old := claimed(t, before, []string{w.Key()})
	changed := w
	changed.NonBlock = true
	apply(t, before, changed)
	next := claimed(t, before, []string{w.Key()})
	if err := serve(before, next); err != nil {
		t.Fatal(err)
	}
	table := newTable(t)
	table.Offer(handedOver(t, before))
	if err := errors.Join(table.Resume([]Holding{{Resolved: changed.Resolved, Claim: next[0], Serves: true}, {Resolved: w.Resolved, Claim: old[0]}})...); err != nil {
		t.Fatal(err)
	}
	apply(t, table, changed)
	for _, claims := range [][]string{old, next} {
		if inodeOf(t, table.FD(claims[0], 0)) != inodeOf(t, before.FD(claims[0], 0)) {
			t.Errorf("claim %q is on another socket", claims[0])
		}
	}
	if len(table.Unclaimed()) != 0 || len(table.Export()) != 2 {
		t.Errorf("%d sockets", len(table.Export()))
	}
	_ = before.Close()
	arrive(t, table, next[0], 30)
	table.Release(old)
	arrive(t, table, next[0], 30)
	table.Release(next)
	if len(table.Export()) != 1 {
		t.Error("the old lane is open")
	}
}

// handedOver returns the sockets of a table as the next supervisor receives them.
func handedOver(t testing.TB, table *Table) []inherit.Socket {
	t.Helper()
	var all []inherit.Socket
	for _, n := range table.Export() {
		fd, err := unix.FcntlInt(uintptr(n.FD), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		i, err := inherit.Examine(fd, n.Name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, i)
	}
	return all
}

func TestMissingSocketsOfLivingGenerationsAreReopened(t *testing.T) {
	table := newTable(t)
	w := want(t, Spec{Name: "slots", Address: addr(freePort(t)), PerSlot: true})
	if err := errors.Join(table.Resume([]Holding{{Resolved: w.Resolved, Claim: w.Key() + "\t3"}, {Resolved: w.Resolved, Claim: w.Key() + "\t2", Serves: true}})...); err != nil {
		t.Fatal(err)
	}
	if table.FD(w.Key()+"\t3", 2) < 0 || len(table.Export()) != 3 {
		t.Errorf("%d sockets", len(table.Export()))
	}
	bad := want(t, Spec{Address: addr("192.0.2.77:80")})
	some := newTable(t)
	if errs := some.Resume([]Holding{{Resolved: want(t, Spec{Address: addr(freePort(t))}).Resolved}, {Resolved: bad.Resolved}}); len(errs) != 1 || len(some.Export()) != 1 {
		t.Errorf("errors %v, %d sockets", errs, len(some.Export()))
	}
}

func TestSocketWithARemovedPathIsReboundForTheNextGeneration(t *testing.T) {
	spec, path := onDisk(t)
	table, w, fd := opened(t, spec)
	old := claimed(t, table, []string{w.Key()})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if table.Stranded(w.Key()) {
		t.Error("the socket was not bound again yet")
	}
	apply(t, table, w)
	if !table.Stranded(w.Key()) || table.FD(old[0], 0) != fd {
		t.Error("the generation has lost its socket, or the loss was not reported")
	}
	refusing := func() {
		t.Helper()
		if _, err := net.Dial("unix", path); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a client gets %v", err)
		}
	}
	refusing()
	trial := claimed(t, table, []string{w.Key()})
	if table.Stranded(w.Key()) {
		t.Error("a generation has the new socket")
	}
	dial(t, "unix", path)
	table.Release(trial)
	refusing()
	trial = claimed(t, table, []string{w.Key()})
	table.Release(old)
	if isOpen(fd) {
		t.Error("the old socket is open")
	}
	dial(t, "unix", path)
	accepted(t, table.FD(trial[0], 0))
}

func TestUnreachableSocketComesBackToItsGeneration(t *testing.T) {
	spec, path := onDisk(t)
	before, w, _ := opened(t, spec)
	old := claimed(t, before, []string{w.Key()})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	table := newTable(t)
	table.Offer(handedOver(t, before))
	if err := errors.Join(table.Resume([]Holding{{Resolved: w.Resolved, Claim: old[0], Serves: true}})...); err != nil {
		t.Fatal(err)
	}
	if inodeOf(t, table.FD(old[0], 0)) != inodeOf(t, before.FD(old[0], 0)) {
		t.Error("the generation has another socket")
	}
	apply(t, table, w)
	if !table.Stranded(w.Key()) {
		t.Error("the socket was not bound again")
	}
}

package socket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/socket/inherit"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// story is one listener, and the generations that have lanes of it by their names. Its steps, a line each:
//
//	hold a b        a and b get lanes               come 20 a b   20 clients come, each to a or b, which takes them
//	serve a 3 b 1   new clients go there, 3 to 1    wait 2        2 come, which nobody takes yet
//	release a       a is gone                       take 2 a      a takes these 2, and no others are there
//	probe a         a probe reaches a               refused 2     supervisord resets 2 that nobody would take
//	left a          a gets nothing new, and is      down a        a worker of a shuts its sockets down; they listen again
//	                looked at                       connect a     a worker of a connects its socket, of UDP
//	same b a        b has the sockets that a had    widen a       the listener becomes one of IPv6
//	slots 3         the next ones have 3 slots      restart       the next supervisord knows the sockets alone,
//	open 3          3 sockets are open              upgrade       … or the generations, too
//	unowned 1       so many queues have no owner    lanes         each socket gets what is steered to it
//	shake           one connects, says nothing      say           … and now it does
//	await a         it is in a socket that a had    reset 1       the last client was reset
//	peers 5         five with a flow each           flow a b      each sends: new ones reach a and b, others stay
//	forget          no flow continues               handover flow from now on
//	id a b          a datagram of a connection of   id - b        … of one that nobody knows, of QUIC
//	                a reaches b
//	deaf 0 2        these members are               shut a        as down, and nobody has noticed yet
//	kill a b        the next supervisord has what   pause, resume, close, reopen
//	                workers of a and b have         orphan a        a worker of a is left, and no record knows it
//
// And of a unix socket:
//
//	rm              its path is removed             put WHAT      another is there now
//	rm all          … and the hidden link           repair        that is seen, and the path put back
//	other b a       b has none of the sockets of a  taken WORDS   … and left alone, but said
//	stranded        a generation has one that no    miss          clients are refused
//	                client finds; "not": none has   end           it is closed, and leaves nothing; "left": what was put
//	update          the configuration is read       restart 1     … where one socket is left over
//	resumed         upgrade, and no update yet
//
// A client is a connection that has sent something; of UDP it is a datagram.
type story struct {
	*testing.T
	table *Table
	w     Want
	lanes map[string]*Lane
	had   map[string][]uint64 // the inodes of their sockets
	quic  map[string]byte     // their numbers in the IDs of connections
	conns []net.Conn          // of clients that wait, or have waited
	peers []net.Conn          // that have a flow
	flows []string            // where each of these began
	there os.FileInfo         // what was put at the path
}

// play plays the steps with a listener at each of these addresses.
func play(t *testing.T, s Spec, addresses []string, steps string) {
	t.Helper()
	for _, address := range addresses {
		s.Address = addr(address)
		t.Run(address, func(t *testing.T) {
			if strings.Contains(address, "::1") {
				needIPv6(t)
			}
			begin(t, s).play(steps)
		})
	}
}

// Addresses of every kind that can be steered.
var (
	tcpAddresses = []string{"127.0.0.1:0", "[::1]:0", ":0"}
	udpAddresses = []string{"udp:127.0.0.1:0", "udp:[::1]:0", "udp::0"}
	ipAddresses  = slices.Concat(tcpAddresses, udpAddresses)
)

// begin begins a story of a listener whose generations have lanes of their own.
func begin(t *testing.T, s Spec) *story {
	t.Helper()
	table, w := steered(t, s)
	return &story{T: t, table: table, w: w, lanes: map[string]*Lane{}, had: map[string][]uint64{},
		quic: map[string]byte{}}
}

func (s *story) play(story string) {
	s.Helper()
	for i, step := range strings.FieldsFunc(story, func(r rune) bool { return r == ';' || r == '\n' }) {
		words := strings.Fields(step)
		if len(words) == 0 {
			continue
		}
		if s.perform(words[0], words[1:]); s.Failed() {
			s.Fatalf("at step %d: %s", i+1, strings.Join(words, " "))
		}
	}
}

// steps are what a story is made of, by their first words.
var steps = map[string]func(s *story, words []string){
	"slots":    func(s *story, words []string) { s.w.Slots = s.count(words[0]); s.update() },
	"handover": func(s *story, words []string) { s.w.Handover = Handover(words[0]); s.update() },
	"hold":     func(s *story, names []string) { s.each(names, func(name string) { s.hold(name) }) },
	"after":    func(s *story, names []string) { s.hold(names[0], s.lanes[names[1]]) },
	"serve":    func(s *story, words []string) { must.Do(s, s.table.Steer(s.parts(words))) },
	"leave":    func(s *story, names []string) { must.Do(s, s.table.Leave([]*Lane{s.lanes[names[0]]})) },
	"release":  func(s *story, names []string) { s.each(names, s.release) },
	"vacate":   func(s *story, words []string) { s.equal(vacated(s.table), words[0]) },
	"come":     func(s *story, words []string) { s.come(s.count(words[0]), words[1:]) },
	"wait":     func(s *story, words []string) { s.wait(s.count(words[0])) },
	"take":     func(s *story, words []string) { s.take(s.count(words[0]), words[1]) },
	"shake":    func(s *story, _ []string) { s.conns = append(s.conns, s.dial()) },
	"say":      func(s *story, _ []string) { speak(s, s.conns[len(s.conns)-1]) },
	"await":    func(s *story, names []string) { s.await(s.had[names[0]][0]) },
	"reset":    func(s *story, words []string) { s.reset(s.count(words[0])) },
	"refused":  func(s *story, words []string) { s.equal(emptied(s, s.table), words[0]) },
	"unowned":  func(s *story, words []string) { s.equal(len(s.table.Unowned(s.w.Key())[s.w.Key()]), words[0]) },
	"open":     func(s *story, words []string) { s.equal(len(s.table.FDs(s.w.Key())), words[0]) },
	"same":     func(s *story, names []string) { s.equal(s.had[names[0]], s.had[names[1]]) },
	"other":    func(s *story, names []string) { s.equal(s.in(names[1])(s.fds(names[0])[0]), false) },
	"left":     func(s *story, names []string) { s.each(names, s.left) },
	"probe":    func(s *story, names []string) { s.each(names, s.probe) },
	"shut":     func(s *story, names []string) { s.each(names, s.shut) },
	"down":     func(s *story, names []string) { s.each(names, s.shut); s.revive() },
	"revive":   func(s *story, _ []string) { s.revive() },
	"kill":     (*story).kill,
	"orphan":   func(s *story, names []string) { s.table.SetOrphans(s.hadBy(names...)) },
	"evade":    (*story).evade,
	"peers":    func(s *story, words []string) { s.meet(s.count(words[0])) },
	"flow":     (*story).flow,
	"id":       func(s *story, words []string) { s.id(words[0], words[1]) },
	"forget":   func(s *story, _ []string) { clear(s.flows) },
	"connect":  func(s *story, names []string) { must.Do(s, s.connect(s.lanes[names[0]].FD(0))) },
	"widen":    func(s *story, names []string) { s.each(names, s.widen) },
	"upgrade":  func(s *story, _ []string) { s.resumed(); s.update(); s.equal(unclaimed(s.table), 0) },
	"resumed":  func(s *story, _ []string) { s.resumed() },
	"restart":  (*story).restart,
	"deaf":     (*story).deaf,
	"lanes":    func(s *story, _ []string) { s.eachMember() },
	"pause":    func(s *story, _ []string) { must.Do(s, s.table.Pause([]string{s.w.Key()}, true)) },
	"resume":   func(s *story, _ []string) { must.Do(s, s.table.Pause([]string{s.w.Key()}, false)) },
	"update":   func(s *story, _ []string) { s.update() },
	"rm":       func(s *story, words []string) { spoil(s, s.path(), len(words) > 0) },
	"put":      func(s *story, words []string) { s.put(strings.Join(words, " ")) },
	"repair":   func(s *story, _ []string) { must.Do(s, s.repair()) },
	"taken":    func(s *story, words []string) { s.alone(strings.Join(words, " ")) },
	"stranded": func(s *story, words []string) { s.equal(s.table.Stranded(s.w.Key()), len(words) == 0) },
	"miss":     func(s *story, _ []string) { refusesClients(s, "unix", s.path()) },
	"end":      func(s *story, words []string) { s.end(len(words) > 0) },
	"close":    func(s *story, _ []string) { setOpen(s, s.table, s.w.Key(), false) },
	"reopen":   func(s *story, _ []string) { setOpen(s, s.table, s.w.Key(), true) },
}

func (s *story) perform(verb string, words []string) {
	s.Helper()
	step := steps[verb]
	if step == nil {
		s.Fatal("there is no such step")
	}
	step(s, words)
}

func (s *story) each(names []string, do func(name string)) {
	for _, name := range names {
		do(name)
	}
}

func (s *story) update() { s.Helper(); apply(s, s.table, s.w) }

// hold gives a generation its lane: that of another one that ends before it begins, if there is one.
func (s *story) hold(name string, before ...*Lane) {
	s.Helper()
	s.lanes[name] = must.Get(s.table.Hold([]Resolved{s.w.Resolved}, 0, before))(s)[0]
	s.note(name)
}

// note notes what a generation has.
func (s *story) note(name string) {
	s.had[name] = s.inodes(name)
	number, _ := s.lanes[name].QUIC()
	s.quic[name] = byte(number)
}

func (s *story) release(name string) {
	s.table.Release([]*Lane{s.lanes[name]})
	delete(s.lanes, name)
}

// wait lets clients come, each of which waits in a socket when the next one comes.
func (s *story) wait(n int) {
	s.Helper()
	for range n {
		before := s.received()
		s.conns = append(s.conns, s.client())
		for looks := 0; s.w.at.isUDP() && s.received() == before; looks++ {
			if runtime.Gosched(); looks > 1_000_000 { // what follows must not change where the datagram goes
				s.Fatal("the datagram is nowhere")
			}
		}
	}
}

func (s *story) reset(n int) {
	s.Helper()
	for _, conn := range s.conns[len(s.conns)-n:] {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			s.Fatalf("a client sees %v", err)
		}
	}
}

// restart lets the next supervisord continue with the sockets alone; so many of them are left over.
func (s *story) restart(words []string) {
	s.Helper()
	s.succeed(handedOver(s, s.table))
	if words = append(words, "0"); words[0] != strconv.Itoa(unclaimed(s.table)) {
		s.Fatalf("other than %s sockets are left over", words[0])
	}
}

func (s *story) path() string { return s.w.Address.Path }

// put puts one of the occupants at the path.
func (s *story) put(what string) {
	s.Helper()
	occupants[what](s, s.path())
	if what != "nothing" {
		s.there = statOf(s, s.path())
	}
}

func (s *story) repair() error {
	s.Helper()
	damage, err := s.table.Repair(s.w.Key())
	if damage == "" {
		s.Error("no damage is seen")
	}
	return err
}

// alone checks that nobody takes the path from who has it: neither a repair nor a configuration, nor the next
// supervisord.
func (s *story) alone(says string) {
	s.Helper()
	before := s.table.Export()
	errs := []error{s.repair(), refuses(s, s.table, s.w, "address already in use", says),
		refuses(s, newTable(s), s.w, "address already in use", says)}
	for _, err := range errs {
		if !errors.Is(err, unix.EADDRINUSE) {
			s.Errorf("the kernel's error is not wrapped: %v", err)
		}
	}
	if !slices.Equal(before, s.table.Export()) || !os.SameFile(s.there, statOf(s, s.path())) {
		s.Error("the table is not as it was, or what is at the path")
	}
}

// end closes the table, which leaves nothing behind, or what somebody else has put at the path.
func (s *story) end(left bool) {
	s.Helper()
	must.Do(s, s.table.Close())
	for _, path := range must.Get(filepath.Glob(filepath.Dir(s.path()) + "/*"))(s) {
		if !left || path != s.path() || !os.SameFile(s.there, statOf(s, path)) {
			s.Errorf("%s is left", path)
		}
	}
}

// probe probes a generation, whose socket it reaches, and no other.
func (s *story) probe(name string) {
	s.Helper()
	p := must.Get(s.lanes[name].Probe(0))(s)
	conn := must.Get(p.Dial(s.Context()))(s)
	if got, want := s.taken(s.table.FDs(s.w.Key())), s.fds(name)[0]; got != want {
		s.Fatalf("a probe reaches the socket %d, not %d", got, want)
	}
	_ = conn.Close()
	p.End()
	p.End()
}

func (s *story) meet(n int) {
	for range n {
		s.peers, s.flows = append(s.peers, s.dial()), append(s.flows, "")
	}
}

func (s *story) widen(name string) {
	s.Helper()
	must.Do(s, s.lanes[name].Widen(0))
	s.had[name] = s.inodes(name) // which it replaces
}

func (s *story) count(word string) int {
	return must.Get(strconv.Atoi(word))(s)
}

func (s *story) equal(got, want any) {
	s.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		s.Fatalf("it is %s, want %s", g, w)
	}
}

// fds lists the descriptors of a lane, each once.
func (s *story) fds(name string) (fds []int) {
	for slot := range s.lanes[name].Sockets() {
		fds = append(fds, s.lanes[name].FD(slot))
	}
	return fds
}

func (s *story) inodes(name string) (inodes []uint64) {
	for _, fd := range s.fds(name) {
		inodes = append(inodes, inodeOf(s, fd))
	}
	return inodes
}

// tags reads the tags of a lane's sockets, as the kernel has them.
func (s *story) tags(name string) (tags []int) {
	for _, fd := range s.fds(name) {
		if s.path() != "" {
			continue // a unix socket has none
		}
		tags = append(tags, must.Get(diag.GetTag(fd))(s))
	}
	return tags
}

// in says whether a descriptor is of a socket that one of these has, or had.
func (s *story) in(names ...string) func(fd int) bool {
	return func(fd int) bool {
		if fd < 0 { // no client has come
			return false
		}
		id := inodeOf(s, fd)
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(s.had[name], id) })
	}
}

func (s *story) parts(words []string) (parts []Part) {
	for len(words) > 0 {
		part := Part{Lanes: []*Lane{s.lanes[words[0]]}, Weight: 1}
		if words = words[1:]; len(words) > 0 && words[0][0] <= '9' {
			part.Weight, words = s.count(words[0]), words[1:]
		}
		parts = append(parts, part)
	}
	return parts
}

func (s *story) at() string {
	if s.path() != "" {
		return s.path()
	}
	return s.table.listeners[s.w.Key()].reachedAt().String()
}

func (s *story) dial() net.Conn { s.Helper(); return dial(s, s.w.at.network, s.at()) }

// client sends a datagram, or connects and sends something.
func (s *story) client() net.Conn {
	s.Helper()
	conn := s.dial()
	speak(s, conn)
	return conn
}

func speak(t testing.TB, conn net.Conn) {
	t.Helper()
	_ = must.Get(conn.Write([]byte("request")))(t)
}

// received is how much memory datagrams take that wait.
func (s *story) received() (sum uint32) {
	for _, fd := range s.table.FDs(s.w.Key()) {
		var info [64]byte
		if _, known := rawOption(fd, unix.SOL_SOCKET, unix.SO_MEMINFO, &info); known {
			sum += binary.NativeEndian.Uint32(info[:]) // SK_MEMINFO_RMEM_ALLOC
		}
	}
	return sum
}

// come lets clients come one after the other, and looks at every socket of the listener for each.
func (s *story) come(n int, names []string) {
	s.Helper()
	for range n {
		conn := s.client()
		if fd := s.taken(s.table.FDs(s.w.Key())); !s.in(names...)(fd) {
			s.Fatalf("a client reaches the socket %d, and %v have %v", fd, names, s.had)
		}
		if tcp, is := conn.(*net.TCPConn); is {
			_ = tcp.SetLinger(0) // no TIME_WAIT, so that there are enough ports
		}
		_ = conn.Close()
	}
}

// taken takes the client that waits in one of these sockets.
func (s *story) taken(fds []int) int {
	s.Helper()
	if !s.w.at.isUDP() {
		return acceptor(s, fds)
	}
	polledFor(s, fds, unix.POLLIN, patience)
	for _, fd := range fds {
		if _, _, err := unix.Recvfrom(fd, make([]byte, 8), unix.MSG_DONTWAIT); err == nil {
			return fd
		}
	}
	return -1
}

// flow lets every peer send to the generation where its flow began; if that is gone, or it is the first time, to one of
// these, each of which some reach.
func (s *story) flow(names []string) {
	s.Helper()
	met := map[string]bool{}
	for i, peer := range s.peers {
		if _, err := peer.Write([]byte("more")); err != nil {
			s.Fatal(err)
		}
		fd, may := s.taken(s.table.FDs(s.w.Key())), names
		if s.lanes[s.flows[i]] != nil {
			may = s.flows[i : i+1]
		}
		at := slices.IndexFunc(may, func(name string) bool { return s.in(name)(fd) })
		if at < 0 {
			s.Fatalf("peer %d, which began at %q, reaches the socket %d, and %v have %v", i, s.flows[i], fd, may, s.had)
		}
		met[may[at]], s.flows[i] = true, may[at]
	}
	for _, name := range names {
		if !met[name] {
			s.Fatalf("nobody reaches %s", name)
		}
	}
}

// id sends datagrams of a connection whose ID a worker of this generation has made; "-": nobody has, or there is none.
func (s *story) id(of, to string) {
	s.Helper()
	id := make([]byte, 7)
	id[LaneByte] = s.quic[of]
	datagrams := [][]byte{shortHeader(id), longHeader(0, id), longHeader(2, id[:LaneByte+1])}
	if of == "-" {
		datagrams = [][]byte{longHeader(0, []byte("made up!")), longHeader(0, id[:LaneByte]), {0x40, 0xff, 1}, {}}
	}
	for _, datagram := range datagrams {
		_ = must.Get(s.dial().Write(datagram))(s)
		if fd := s.taken(s.table.FDs(s.w.Key())); !s.in(to)(fd) {
			s.Fatalf("%x reaches the socket %d, and %s has %d", datagram, fd, to, s.fds(to))
		}
	}
}

// await waits until a client waits in the socket with this inode.
func (s *story) await(inode uint64) {
	s.Helper()
	for _, m := range s.table.listeners[s.w.Key()].members {
		if m.id == inode && readable(s, m.fd, patience) {
			return
		}
	}
	s.Fatal("a client does not wait there")
}

func (s *story) take(n int, name string) {
	s.Helper()
	for range n {
		if fd := s.taken(s.fds(name)); fd < 0 {
			s.Fatal("a client does not wait there")
		}
	}
	for _, p := range polledFor(s, s.table.FDs(s.w.Key()), unix.POLLIN, 0) {
		if p.Revents != 0 {
			s.Fatalf("more clients wait, in the socket %d", p.Fd)
		}
	}
}

// left checks that a look finds the sockets of a lane, which gets nothing new.
func (s *story) left(name string) {
	s.Helper()
	left := Left([]*Lane{s.lanes[name]}, nil)
	if len(left) != 1 || left[0].Port == 0 {
		s.Fatalf("left is %+v", left)
	}
	for _, fd := range s.fds(name) {
		if !slices.Contains(left[0].Queues, inodeOf(s, fd)) && !slices.Contains(left[0].Receives, fd) {
			s.Fatalf("the socket %d is not in %+v", fd, left)
		}
	}
}

// shut does what a worker does that shuts its sockets down and has each as two descriptors, or what several workers do.
func (s *story) shut(name string) {
	s.Helper()
	for _, fd := range slices.Concat(s.fds(name), s.fds(name)) {
		if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil && err != unix.ENOTCONN {
			s.Fatal(err)
		}
	}
}

func (s *story) revive() {
	s.Helper()
	if revived, err := s.table.Revive(s.w.Key()); !revived || err != nil {
		s.Fatalf("revived: %v, %v", revived, err)
	}
}

// kill lets another supervisord continue with nothing but what the workers of these generations have: the one before
// was killed, and nobody has kept its sockets.
func (s *story) kill(survivors []string) {
	s.Helper()
	s.succeed(s.orphans(survivors))
	s.equal(unclaimed(s.table), 0)
}

// orphans are the sockets that the workers of these generations have when supervisord has died.
func (s *story) orphans(survivors []string) (orphans []inherit.Socket) {
	s.Helper()
	for _, name := range survivors {
		for _, fd := range s.fds(name) {
			o := inherited(s, fd, "orphan")
			o.Ours, o.InUse = true, true
			orphans = slices.Insert(orphans, 0, o)
		}
	}
	s.w.Address.Port = s.table.listeners[s.w.Key()].port()
	s.w.Resolved = resolved(s, s.w.Spec)
	return orphans
}

// evade gives the lane of a generation to another one, because an orphan has the sockets that it had.
func (s *story) evade(names []string) {
	s.Helper()
	must.Do(s, errors.Join(s.table.Evade([]*Lane{s.lanes[names[0]]})...))
	s.lanes[names[1]], s.lanes[names[0]] = s.lanes[names[0]], &Lane{}
	s.note(names[1])
}

// hadBy lists the inodes of the sockets that these generations have, or have had.
func (s *story) hadBy(names ...string) (inodes []uint64) {
	for _, name := range names {
		inodes = append(inodes, s.had[name]...)
	}
	return inodes
}

func (s *story) connect(fd int) error {
	at, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	switch at := at.(type) { // to the discard port of the same machine
	case *unix.SockaddrInet4:
		return unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}})
	case *unix.SockaddrInet6:
		return unix.Connect(fd, &unix.SockaddrInet6{Port: 9, Addr: [16]byte{15: 1}, ZoneId: at.ZoneId})
	}
	return unix.EAFNOSUPPORT
}

// resumed lets another supervisord continue with the record of the one before: its generations have what they had.
func (s *story) resumed() {
	s.Helper()
	table, tags := newTable(s), map[string][]int{}
	for name := range s.lanes {
		tags[name] = s.tags(name)
	}
	table.Offer(handedOver(s, s.table))
	must.Do(s, errors.Join(table.Resume(s.recorded(), nil, s.paused())...))
	die(s.table)
	s.table = table
	for name := range s.lanes {
		s.equal(s.inodes(name), s.had[name])
		s.equal(s.tags(name), tags[name])
	}
}

// succeed lets another supervisord take the place of the one before, with these sockets alone.
func (s *story) succeed(offers []inherit.Socket) {
	s.Helper()
	s.follow(newTable(s), offers)
}

func (s *story) follow(table *Table, offers []inherit.Socket) {
	s.Helper()
	die(s.table)
	s.table = table
	clear(s.lanes)
	table.Offer(offers)
	s.update()
}

// paused is the key of the listener if it is paused.
func (s *story) paused() []string {
	if l := s.table.listeners[s.w.Key()]; l != nil && l.paused {
		return []string{l.key}
	}
	return nil
}

// recorded replaces the lanes by what a record has of them, with the one that serves first, as a record has it.
func (s *story) recorded() (lanes []*Lane) {
	s.Helper()
	for name, ln := range s.lanes {
		again := recorded(s, ln)[0]
		if len(ln.slots) > 0 && ln.of.serves(ln.slots[0]) {
			lanes = slices.Insert(lanes, 0, again)
		} else {
			lanes = append(lanes, again)
		}
		s.lanes[name] = again
	}
	return lanes
}

// eachMember steers to each socket of the listener, and looks where clients come.
func (s *story) eachMember() {
	s.Helper()
	l := s.table.listeners[s.w.Key()]
	before := l.serving
	for _, m := range l.members {
		l.serving = serveAll([]*sock{m})
		must.Do(s, l.apply())
		for range 8 {
			conn := s.client()
			if fd := s.taken(s.table.FDs(l.key)); fd != m.fd {
				s.Fatalf("steered to member %d with the socket %d, a client reaches %d", m.number, m.fd, fd)
			}
			_ = conn.Close()
		}
	}
	if l.serving = before; l.apply() != nil {
		s.Fatal("the way back fails")
	}
}

func (s *story) deaf(words []string) {
	s.Helper()
	var numbers []string
	for _, m := range s.table.listeners[s.w.Key()].members {
		if m.isDeaf() {
			numbers = append(numbers, strconv.Itoa(m.number))
		}
	}
	s.equal(strings.Join(numbers, " "), strings.Join(words, " "))
}

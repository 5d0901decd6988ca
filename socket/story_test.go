package socket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/socket/diag"
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
//	deaf 0 2        these members are               pause, resume, close, reopen
//
// A client is a connection that has sent something; of UDP it is a datagram.
type story struct {
	*testing.T
	table *Table
	w     Want
	lanes map[string]*Lane
	had   map[string][]uint64 // the inodes of their sockets
	conns []net.Conn          // of clients that wait, or have waited
	peers []net.Conn          // that have a flow
	flows []string            // where each of these began
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
	return &story{T: t, table: table, w: w, lanes: map[string]*Lane{}, had: map[string][]uint64{}}
}

func (s *story) play(steps string) {
	s.Helper()
	for i, step := range strings.Split(strings.TrimSpace(steps), "\n") {
		for step := range strings.SplitSeq(step, ";") {
			words := strings.Fields(step)
			if s.perform(words[0], words[1:]); s.Failed() {
				s.Fatalf("at step %d: %s", i+1, strings.Join(words, " "))
			}
		}
	}
}

func (s *story) perform(verb string, words []string) {
	s.Helper()
	var err error
	switch verb {
	case "slots":
		s.w.Slots = s.count(words[0])
		err = s.table.Update([]Want{s.w})
	case "hold":
		for _, name := range words {
			s.lanes[name] = held(s, s.table, s.w)[0]
			s.had[name] = s.inodes(name)
		}
	case "serve":
		err = s.table.Steer(s.parts(words))
	case "release":
		for _, name := range words {
			s.table.Release([]*Lane{s.lanes[name]})
			delete(s.lanes, name)
		}
	case "come":
		s.come(s.count(words[0]), words[1:])
	case "wait":
		for range s.count(words[0]) {
			before := s.received()
			s.conns = append(s.conns, s.client())
			for looks := 0; s.w.at.isUDP() && s.received() == before; looks++ {
				if runtime.Gosched(); looks > 1_000_000 { // what follows must not change where the datagram goes
					s.Fatal("the datagram is nowhere")
				}
			}
		}
	case "shake":
		s.conns = append(s.conns, dial(s, s.w.at.network, s.at()))
	case "say":
		_, err = s.conns[len(s.conns)-1].Write([]byte("request"))
	case "await":
		s.await(s.had[words[0]][0])
	case "reset":
		for _, conn := range s.conns[len(s.conns)-s.count(words[0]):] {
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				s.Fatalf("a client sees %v", err)
			}
		}
	case "take":
		s.take(s.count(words[0]), words[1])
	case "unowned":
		s.equal(len(s.table.Unowned(s.w.Key())[s.w.Key()]), s.count(words[0]))
	case "refused":
		s.equal(emptied(s, s.table), s.count(words[0]))
	case "same":
		s.equal(s.had[words[0]], s.had[words[1]])
	case "left":
		s.left(words[0])
	case "probe":
		reaches(s, s.table, s.lanes[words[0]], 0, slices.DeleteFunc(s.table.FDs(s.w.Key()), s.in(words[0]))...)
	case "down":
		s.down(words)
	case "handover":
		s.w.Handover = Handover(words[0])
		err = s.table.Update([]Want{s.w})
	case "peers":
		for range s.count(words[0]) {
			s.peers, s.flows = append(s.peers, dial(s, s.w.at.network, s.at())), append(s.flows, "")
		}
	case "flow":
		s.flow(words)
	case "forget":
		clear(s.flows)
	case "connect":
		err = s.connect(s.lanes[words[0]].FD(0))
	case "widen":
		err = s.lanes[words[0]].Widen(0)
		s.had[words[0]] = s.inodes(words[0]) // which it replaces
	case "upgrade", "restart":
		err = s.next(verb == "upgrade")
	case "open":
		s.equal(len(s.table.FDs(s.w.Key())), s.count(words[0]))
	case "deaf":
		s.deaf(words)
	case "lanes":
		s.eachMember()
	case "pause", "resume":
		err = s.table.Pause([]string{s.w.Key()}, verb == "pause")
	case "close", "reopen":
		setOpen(s, s.table, s.w.Key(), verb == "reopen")
	default:
		s.Fatal("there is no such step")
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *story) count(word string) int {
	n, err := strconv.Atoi(word)
	if err != nil {
		s.Fatal(err)
	}
	return n
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
		tag, err := diag.GetTag(fd)
		if err != nil {
			s.Fatal(err)
		}
		tags = append(tags, tag)
	}
	return tags
}

// in says whether a descriptor is of one of these lanes.
func (s *story) in(names ...string) func(fd int) bool {
	return func(fd int) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(s.fds(name), fd) })
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

func (s *story) at() string { return s.table.listeners[s.w.Key()].reachedAt().String() }

// client sends a datagram, or connects and sends something.
func (s *story) client() net.Conn {
	s.Helper()
	conn := dial(s, s.w.at.network, s.at())
	if _, err := conn.Write([]byte("request")); err != nil {
		s.Fatal(err)
	}
	return conn
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
	if s.w.at.isTCP() {
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

func (s *story) down(names []string) {
	s.Helper()
	for _, name := range names {
		for _, fd := range s.fds(name) {
			if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil {
				s.Fatal(err)
			}
		}
	}
	if revived, err := s.table.Revive(s.w.Key()); !revived || err != nil {
		s.Fatalf("revived: %v, %v", revived, err)
	}
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

// next lets another supervisord continue, with the record of the one before or without.
func (s *story) next(recorded bool) error {
	s.Helper()
	table := newTable(s)
	table.Offer(handedOver(s, s.table))
	tags := map[string][]int{}
	for name := range s.lanes {
		tags[name] = s.tags(name)
	}
	lanes := s.recorded()
	if !recorded {
		clear(s.lanes)
	} else if errs := table.Resume(lanes); errs != nil {
		return errors.Join(errs...)
	}
	die(s.table)
	s.table = table
	err := table.Update([]Want{s.w})
	if left := table.Unclaimed(); len(left) > 0 {
		s.Fatalf("nobody takes %v", left)
	}
	for name := range s.lanes {
		s.equal(s.inodes(name), s.had[name])
		s.equal(s.tags(name), tags[name])
	}
	return err
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
		if err := l.apply(); err != nil {
			s.Fatal(err)
		}
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

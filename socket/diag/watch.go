package diag

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A handshake is given up when the kernel has sent its part of it so often again without an answer, or after this time:
// it would keep a client that has vanished, or an attacker, in hand for a minute. A listener that defers takes the
// client's word that it has connected for an answer, so this time begins when it no longer defers: then the kernel
// sends its part again.
const (
	handshakeAgain = 2
	handshakeLimit = 3 * time.Second
)

// Watch looks at the connections of a generation that gets no new ones. One goroutine at a time may use it.
//
// A kernel that does not show a socket's tag (before Linux 5.10) does not tell whose a connection is: all of the port
// count.
type Watch struct {
	inet       []inetTarget
	requests   [][]byte      // one for each address family in which sockets listen
	sockets    int           // that listen
	silence    time.Duration // see NewWatch
	began      time.Time
	settled    chan struct{}   // closed when all that was on its way to the targets has arrived
	handshakes map[uint64]bool // under way by then, by cookie
	complete   bool            // handshakes are known
	buf        []byte
	held       map[uint64]bool // see Of
	beside     bool
	receivers  []*receiver
	sleeping   func() (naps map[string]string, all bool) // see Sleeping
}

// inetTarget is a Target, and where its sockets listen.
type inetTarget struct {
	Target
	places []place
}

// place is the address and network interface that a socket listens on.
type place struct {
	address [16]byte
	device  uint32
}

var (
	anyIPv6 = [16]byte{}
	anyIPv4 = [16]byte{10: 0xff, 11: 0xff}
)

// holds reports whether a connection with this source can have been accepted here.
func (p place) holds(s *inetSocket) bool {
	return (p.device == 0 || p.device == s.device) &&
		(p.address == s.source || p.address == anyIPv6 ||
			p.address == anyIPv4 && [12]byte(s.source[:]) == [12]byte(anyIPv4[:]))
}

// NewWatch returns a Watch of the connections of some targets. Call it after new connections have been steered
// elsewhere: handshakes that are under way count, because the kernel does not tell whose they are, and those that begin
// later do not. An open connection is in hand until it has been silent in both directions for the time of silence.
func NewWatch(targets []Target, silence time.Duration) *Watch {
	w := &Watch{silence: silence, buf: make([]byte, datagram), began: time.Now(), settled: make(chan struct{}),
		sleeping: func() (map[string]string, bool) { return nil, false }, handshakes: map[uint64]bool{}}
	for _, t := range targets {
		for i, fd := range t.Receives {
			r := &receiver{fd: fd, since: w.began}
			if t.Silences != nil {
				r.silence = t.Silences[i]
			}
			w.receivers = append(w.receivers, r)
		}
		if len(t.Receives) > 0 {
			continue
		}
		w.inet = append(w.inet, inetTarget{Target: t})
		w.sockets += len(t.Queues)
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if ports := w.ports(); len(ports) > 0 {
			w.requests = append(w.requests, inetRequest(family, watchedStates, 1<<(inetInfo-1), ports))
		}
	}
	go w.settle()
	return w
}

// Of narrows the watch to the connections with these inodes, which some of the processes have that accept from the
// targets; nil: all connections count. beside says that others accept from the same sockets: then what waits to be
// accepted does not count, nor do handshakes. A process may accept a connection between the reading of its descriptors
// and the look, which then counts it nowhere. Where nothing new comes, a second look that follows finds it.
func (w *Watch) Of(inodes map[uint64]bool, beside bool) { w.held, w.beside = inodes, beside }

func (w *Watch) ports() (ports []uint16) {
	for _, t := range w.inet {
		if !slices.Contains(ports, t.Port) {
			ports = append(ports, t.Port)
		}
	}
	return ports
}

// Look asks the kernel: once for each address family, and again if nothing is in hand and the answer was long, because
// such an answer is not of one moment and may leave out a connection. Before it says for the first time that nothing is
// in hand, it waits some milliseconds for what is about to arrive.
func (w *Watch) Look() (InHand, error) {
	began := time.Now()
	settled := w.isSettled()
	l, datagrams, err := w.once(began)
	if err == nil && l.Quiet() && (!settled || datagrams > len(w.requests)) {
		<-w.settled
		settled = true
		l, _, err = w.once(began)
	}
	w.complete = w.complete || settled && err == nil
	l.Took = time.Since(began)
	return l, err
}

// settle waits until every packet that is being handled has arrived. One that the old steering program has sent to the
// old lane a moment ago may still be about to begin a handshake there, which no look would show yet. The kernel handles
// packets in RCU read sections, and membarrier(2) waits until those under way have ended: mostly 2 to 30 ms, without
// any CPU time. A kernel that has no such call cannot be waited for.
func (w *Watch) settle() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
	close(w.settled)
}

func (w *Watch) isSettled() bool {
	select {
	case <-w.settled:
		return true
	default:
		return false
	}
}

func (w *Watch) once(now time.Time) (l InHand, datagrams int, err error) {
	v := view{Watch: w, now: now}
	var needed [][]byte
	for _, request := range w.requests {
		before := v.seen
		n, err := dumpInet(request, w.buf, v.see)
		if err != nil {
			return l, 0, err
		}
		if v.seen > before {
			needed = append(needed, request)
		}
		datagrams += n
	}
	if v.seen == w.sockets {
		w.requests = needed
	}
	if err := v.ask(); err != nil {
		return l, 0, err
	}
	v.Queued = max(v.Queued, v.waiting)
	w.receive(&v.InHand, now)
	return v.InHand, datagrams, nil
}

// view is one look under way.
type view struct {
	*Watch
	InHand
	now     time.Time
	seen    int      // listening sockets
	waiting int      // connections in the queues, as the listening sockets say it
	unsure4 []uint64 // connections of IPv4, by inode
	unsure6 []uint64
}

// ask finds out which connections that are unsure wait for an answer.
func (v *view) ask() error {
	four, err4 := unanswered(v.unsure4, false)
	six, err6 := unanswered(v.unsure6, true)
	v.Answering += four + six
	v.Idle += len(v.unsure4) + len(v.unsure6) - four - six
	return errors.Join(err4, err6)
}

// see counts one TCP socket. The kernel shows listening sockets first.
func (v *view) see(s *inetSocket) {
	switch {
	case s.state == listening:
		v.listens(s)
	case s.state == synReceived && !s.tagged:
		if !v.beside {
			v.handshake(s)
		}
	case v.held != nil && !v.held[uint64(s.inode)]:
	case v.owns(s):
		p := s.phase(v.silence)
		if p == queued && !s.tagged {
			return // the listening sockets know
		}
		switch {
		case p != unsure:
			v.count(p)
		case s.family == unix.AF_INET:
			v.unsure4 = append(v.unsure4, uint64(s.inode))
		default:
			v.unsure6 = append(v.unsure6, uint64(s.inode))
		}
		if p == active {
			v.Silent = max(v.Silent, v.silence-s.info.silent())
		}
	}
}

func (v *view) listens(s *inetSocket) {
	for i := range v.inet {
		t := &v.inet[i]
		if t.Port == s.port && slices.Contains(t.Queues, uint64(s.inode)) {
			if !v.beside {
				v.waiting += int(s.readable)
			}
			v.seen++
			if p := (place{s.source, s.device}); !slices.Contains(t.places, p) {
				t.places = append(t.places, p)
			}
		}
	}
}

func (v *view) handshake(s *inetSocket) {
	if !v.complete {
		v.handshakes[s.cookie] = true
	}
	if v.handshakes[s.cookie] && s.retransmits < handshakeAgain && v.now.Sub(v.began) < v.defers(s.port)+handshakeLimit {
		v.Handshakes++
	}
}

// defers is for how long a handshake at a port can be deferred.
func (w *Watch) defers(port uint16) (longest time.Duration) {
	for i := range w.inet {
		if t := &w.inet[i]; t.Port == port {
			longest = max(longest, t.Defers)
		}
	}
	return longest
}

// owns reports whether a connection is one of the targets'.
func (w *Watch) owns(s *inetSocket) bool {
	for i := range w.inet {
		t := &w.inet[i]
		if t.Port == s.port && (!s.tagged || t.Tags>>s.tag&1 == 1) &&
			(len(t.places) == 0 || slices.ContainsFunc(t.places, func(p place) bool { return p.holds(s) })) {
			return true
		}
	}
	return false
}

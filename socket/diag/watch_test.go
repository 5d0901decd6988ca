package diag

import (
	"crypto/tls"
	"math/bits"
	"net"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
)

func TestTagsAreInherited(t *testing.T) {
	for _, network := range families {
		for tag := range Tags {
			if network != families[0] && bits.OnesCount(uint(tag)) > 1 {
				continue // each bit alone is enough
			}
			t.Run(network+", "+strconv.Itoa(tag), func(t *testing.T) {
				n := open(t, network, tag)
				if got, err := GetTag(n.fd); err != nil || got != tag {
					t.Errorf("the socket has tag %d: %v", got, err)
				}
				n.pair(t)
				n.dial(t)
				becomes(t, NewWatch([]Target{n.target()}, time.Hour), "the tag", InHand{Queued: 1, Active: 1})
				other := n.target()
				other.Tags, other.Queues = ^other.Tags, nil
				if l := look(t, NewWatch([]Target{other}, silence)); l != (InHand{}) {
					t.Errorf("another tag has %+v", l)
				}
				must.Do(t, SetTag(n.fd, 31-tag))
				n.dial(t)
				other.Tags, other.Queues = 1<<(31-tag), []uint64{n.inode}
				// the queue is the same; its first connection keeps the tag
				becomes(t, NewWatch([]Target{other}, silence), "another tag", InHand{Queued: 2})
			})
		}
	}
}

func TestInvalidTagIsRefused(t *testing.T) {
	for _, tag := range []int{-1, 32} {
		if err := SetTag(openTCP(t, 0).fd, tag); err == nil {
			t.Errorf("tag %d was set", tag)
		}
	}
	if err := SetTag(-1, 1); err == nil {
		t.Error("nothing has a tag")
	}
}

func TestQueuedConnectionsCount(t *testing.T) {
	n := openTCP(t, 3)
	w := n.watch()
	n.dial(t)
	write(t, n.dial(t), "data that nobody reads yet")
	half := n.dial(t)
	half.(*net.TCPConn).CloseWrite()
	becomes(t, w, "three queued", InHand{Queued: 3})
	for range 3 {
		n.accept(t)
	}
	becomes(t, w, "accepted", InHand{Unread: 1, Idle: 2}) // after a while
}

// TestConnectionPassesThroughAllPhases follows one connection.
func TestConnectionPassesThroughAllPhases(t *testing.T) {
	n := openTCP(t, 1)
	w, patient := n.watch(), n.patient()
	c := n.dial(t)
	becomes(t, w, "queued", InHand{Queued: 1})
	s := n.accept(t)
	becomes(t, patient, "its request is on the way", InHand{Active: 1})
	time.Sleep(20 * time.Millisecond) // more than a tick of the kernel's clock
	write(t, c, "request")
	becomes(t, w, "unread", InHand{Unread: 1})
	read(t, s, "request")
	becomes(t, w, "read", InHand{Answering: 1})
	time.Sleep(2 * silence)
	becomes(t, w, "not answered for long", InHand{Answering: 1})
	answers := time.Now()
	write(t, s, "a part")
	read(t, c, "a part")
	becomes(t, patient, "answered, perhaps", InHand{Active: 1})
	becomes(t, w, "idle", InHand{Idle: 1})
	if d := time.Since(answers); d < silence-20*time.Millisecond {
		t.Errorf("idle %v after the answer", d)
	}
	write(t, s, "the rest")
	read(t, c, "the rest")
	becomes(t, patient, "not idle yet", InHand{Active: 1})
	becomes(t, w, "idle again", InHand{Idle: 1})
	c.Close()
	becomes(t, w, "closed by the client", InHand{Idle: 1})
	s.Close()
	becomes(t, w, "gone", InHand{})
}

// TestNextRequestRightAfterAnAnswerIsInHand: mostly both come in one tick of the kernel's clock.
func TestNextRequestRightAfterAnAnswerIsInHand(t *testing.T) {
	for _, network := range families {
		n := open(t, network, 0)
		w := n.watch()
		var pending, answered [5]net.Conn
		for i := range pending {
			c, s := n.pair(t)
			for range 3 {
				exchange(t, c, s)
			}
			write(t, c, "request")
			read(t, s, "request")
			pending[i] = s
			c, answered[i] = n.pair(t)
			for range 4 {
				exchange(t, c, answered[i])
			}
		}
		becomes(t, w, network, InHand{Answering: len(pending), Idle: len(answered)})
		for _, s := range pending {
			write(t, s, "answer")
		}
		becomes(t, w, network+": all are answered", InHand{Idle: len(pending) + len(answered)})
	}
}

func TestConnectionClosedByItsClient(t *testing.T) {
	n := openTCP(t, 0)
	w := n.watch()
	c, s := n.pair(t)
	time.Sleep(20 * time.Millisecond)
	write(t, c, "request")
	c.(*net.TCPConn).CloseWrite()
	becomes(t, w, "unread", InHand{Unread: 1})
	read(t, s, "request")
	becomes(t, w, "read: the client may wait for its answer", InHand{Answering: 1})
	write(t, s, "answer")
	read(t, c, "answer")
	becomes(t, n.patient(), "answered", InHand{Active: 1}) // it may be half of the answer
	becomes(t, w, "silent", InHand{Idle: 1})
}

func TestConnectionClosedByItsServerDoesNotCount(t *testing.T) {
	n := openTCP(t, 0)
	w := n.watch()
	c, s := n.pair(t)
	exchange(t, c, s)
	s.Close() // the client keeps it half open
	becomes(t, w, "FIN_WAIT2", InHand{})

	c, s = n.pair(t)
	exchange(t, c, s)
	s.(*net.TCPConn).CloseWrite()
	becomes(t, w, "shut down, and still open", InHand{})

	c, s = n.pair(t)
	exchange(t, c, s)
	c.Close()
	s.Close()
	becomes(t, w, "LAST_ACK, and gone", InHand{})
}

func TestUnacknowledgedAnswerIsUnderWay(t *testing.T) {
	n := openTCP(t, 0)
	w := n.watch()
	c, s := n.pair(t)
	write(t, c, "request")
	read(t, s, "request")
	s.SetWriteDeadline(time.Now().Add(2 * silence))
	for err := error(nil); err == nil; {
		_, err = s.Write(make([]byte, 1<<20)) // until no buffer has room
	}
	time.Sleep(4 * silence)
	if l := look(t, w); l != (InHand{Answering: 1}) {
		t.Errorf("%+v", l)
	}
}

func TestTLSHandshakeIsInHand(t *testing.T) {
	n := openTCP(t, 0)
	w := n.patient()
	c, s := n.pair(t)
	// A server that has answered the client's first message, and a client that is 30 ms away.
	time.Sleep(20 * time.Millisecond)
	hello := make(chan []byte, 1)
	go func() {
		b := make([]byte, 4096)
		k, _ := s.Read(b)
		hello <- b[:k]
		s.Write(make([]byte, 3000))
	}()
	go tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake()
	if b := <-hello; len(b) < 100 || b[0] != 22 {
		t.Fatalf("not a TLS handshake: %x", b)
	}
	for end := time.Now().Add(30 * time.Millisecond); time.Now().Before(end); {
		if l := look(t, w); l.Quiet() && time.Now().Before(end) {
			t.Fatalf("%+v", l)
		}
	}
}

// TestHandshakeUnderWayCounts drops the last part of handshakes at the listening socket.
func TestHandshakeUnderWayCounts(t *testing.T) {
	for _, network := range families {
		n := open(t, network, 7)
		letThrough := unit.OnlySYN(t, n.fd)
		before := n.dial(t)
		w := n.watch()
		becomes(t, w, network+": one handshake", InHand{Handshakes: 1})
		<-w.settled
		look(t, w)
		n.dial(t) // it is the next generation's
		becomes(t, w, network+": the same", InHand{Handshakes: 1})
		letThrough()
		write(t, before, "request")
		becomes(t, w, network+": queued", InHand{Queued: 1})
	}
}

// TestHandshakeIsGivenUpAfterItsTime: one whose end never comes, and those that are deferred.
func TestHandshakeIsGivenUpAfterItsTime(t *testing.T) {
	for _, seconds := range []int{0, 3, 15} {
		n := openTCP(t, 0)
		target := n.target()
		if target.Defers = time.Duration(seconds) * time.Second; seconds == 0 {
			unit.OnlySYN(t, n.fd)
		} else {
			must.Do(t, unix.SetsockoptInt(n.fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, seconds))
		}
		n.dial(t)
		w := NewWatch([]Target{target}, silence)
		becomes(t, w, "one handshake", InHand{Handshakes: 1})
		began := w.began
		w.began = began.Add(-target.Defers)
		becomes(t, w, "the kernel asks the client again", InHand{Handshakes: 1})
		w.began = began.Add(-target.Defers - handshakeLimit)
		if l := look(t, w); l != (InHand{}) {
			t.Errorf("deferred for %v, and as long as another handshake lasts: %+v", target.Defers, l)
		}
	}
}

func TestSeveralPortsFamiliesAndSocketsAreOneLook(t *testing.T) {
	var targets []Target
	for i, network := range append(families, "tcp4 127.0.0.2:0", "tcp4 0.0.0.0:0") {
		n := open(t, network, i)
		targets = append(targets, n.target())
		n.dial(t)
		n.pair(t)
	}
	stranger := openTCP(t, 0)
	stranger.dial(t)
	w := NewWatch(targets, time.Minute)
	becomes(t, w, "all", InHand{Queued: 5, Active: 5})
}

// TestOtherAddressOnTheSamePortDoesNotCount has two listeners with the same port and tag.
func TestOtherAddressOnTheSamePortDoesNotCount(t *testing.T) {
	n := openTCP(t, 5)
	other := open(t, "tcp4 127.0.0.2:"+strconv.Itoa(int(n.port)), 5)
	other.dial(t)
	other.pair(t)
	becomes(t, other.patient(), "the other", InHand{Queued: 1, Active: 1})
	if l := look(t, n.watch()); l != (InHand{}) {
		t.Errorf("%+v", l)
	}
}

// TestUnprivilegedUserSeesConnections looks as a user who has neither the sockets nor capabilities.
func TestUnprivilegedUserSeesConnections(t *testing.T) {
	n := openTCP(t, 31)
	c, _ := n.pair(t)
	n.dial(t)
	write(t, c, "request")
	becomes(t, n.watch(), "as root", InHand{Queued: 1, Unread: 1})
	unit.AsOrdinaryUser(t, func() {
		if l, err := n.watch().Look(); err != nil || l.Queued != 1 || l.Unread != 1 {
			t.Errorf("as an unprivileged user: %+v, %v", l, err)
		}
	})
}

// TestRequestInTheTickOfTheAnswerBeforeItIsInHand sends requests right after the handshake, or after the answer to the
// one before. The kernel's clock is too coarse to tell the second from an answered one.
func TestRequestInTheTickOfTheAnswerBeforeItIsInHand(t *testing.T) {
	n := openTCP(t, 0)
	w := n.watch()
	for range 20 {
		c, s := n.pair(t)
		write(t, c, "request")
		read(t, s, "request")
	}
	time.Sleep(silence + 20*time.Millisecond)
	becomes(t, w, "not answered", InHand{Answering: 20})
	w = NewWatch([]Target{n.target()}, time.Minute)
	for i := range 20 {
		c, s := n.pair(t)
		for range 10 {
			exchange(t, c, s)
		}
		write(t, c, "request")
		read(t, s, "request")
		if l := look(t, w); l.Answering+l.Active != 21+i {
			t.Fatalf("%+v", l)
		}
	}
}

package diag

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPhaseOfAConnection(t *testing.T) {
	const silence = 5 * time.Second
	ago := func(sent, received time.Duration) tcpInfo {
		return tcpInfo{known: true, sent: sent, received: received, bytes: 100, dataOut: 10}
	}
	fresh := func(age time.Duration, bytes uint64) tcpInfo {
		return tcpInfo{known: true, sent: age, received: age, bytes: bytes}
	}
	tick := func(age, acked time.Duration, requests uint32) tcpInfo {
		return tcpInfo{known: true, sent: age, received: age, acked: acked, bytes: 100, dataIn: requests, dataOut: 1}
	}
	for name, c := range map[string]struct {
		inetSocket
		want, atOnce phase // atOnce: with a silence of 0
	}{
		"not accepted":                       {inetSocket{}, queued, queued},
		"not accepted, closed by the client": {inetSocket{state: closeWait, readable: 9}, queued, queued},
		"nothing came yet":                   {inetSocket{inode: 1, info: fresh(silence-1, 0)}, active, idle},
		"nothing came for long":              {inetSocket{inode: 1, info: fresh(silence, 0)}, idle, idle},
		"nothing came, and the client has closed it": {inetSocket{state: closeWait, inode: 1, readable: 1,
			info: fresh(0, 1)}, active, idle},
		"data wait": {inetSocket{inode: 1, readable: 1, info: ago(silence, silence)},
			unread, unread},
		"data wait, and the end": {inetSocket{state: closeWait, inode: 1, readable: 2, info: ago(0, 0)},
			unread, unread},
		"the end waits": {inetSocket{state: closeWait, inode: 1, readable: 1,
			info: ago(silence, silence+1)}, idle, idle},
		"the end waits, and the answer": {inetSocket{state: closeWait, inode: 1, readable: 1,
			info: ago(900, 800)}, answering, idle},
		"unacknowledged": {inetSocket{inode: 1, unacked: 1, info: ago(silence, silence)},
			answering, answering},
		"the last request in the tick of the last answer": {inetSocket{inode: 1, info: tick(silence, silence, 2)},
			unsure, idle},
		"the same, acknowledged by SO_KEEPALIVE": {inetSocket{inode: 1,
			info: tick(silence, silence-latestAck-1, 2)}, unsure, idle},
		"the same, acknowledged a little later": {inetSocket{inode: 1, info: tick(silence, silence-40*time.Millisecond, 2)},
			idle, idle},
		"the same, and the only request":   {inetSocket{inode: 1, info: tick(silence, silence, 1)}, idle, idle},
		"the same, and not silent so long": {inetSocket{inode: 1, info: tick(silence-1, silence-1, 2)}, active, idle},
		"a request without an answer": {inetSocket{inode: 1, info: ago(12*silence, 6*silence)}, answering,
			idle},
		"a first request in the tick of the handshake": {inetSocket{inode: 1,
			info: tcpInfo{known: true, sent: silence, received: silence, bytes: 9}}, answering, idle},
		"the same, half closed": {inetSocket{state: closeWait, inode: 1,
			info: tcpInfo{known: true, sent: silence, received: silence, bytes: 9}}, answering, idle},
		"just answered": {inetSocket{inode: 1, info: ago(silence-1, silence)}, active, idle},
		"answered":      {inetSocket{inode: 1, info: ago(silence, silence)}, idle, idle},
		"answered, half closed": {inetSocket{state: closeWait, inode: 1,
			info: ago(silence-1, silence)}, active, idle},
		"greeted": {inetSocket{inode: 1,
			info: tcpInfo{known: true, sent: 1, received: silence, dataOut: 1}}, active, idle},
		"greeted, and silent": {inetSocket{inode: 1,
			info: tcpInfo{known: true, sent: silence, received: silence, dataOut: 1}}, idle, idle},
		"the kernel says nothing of its history": {inetSocket{inode: 1}, answering, answering},
	} {
		if c.state == 0 {
			c.state = established
		}
		if got := c.phase(silence); got != c.want {
			t.Errorf("%s: phase %d, want %d", name, got, c.want)
		}
		if got := c.phase(0); got != c.atOnce {
			t.Errorf("%s, with a silence of 0: phase %d, want %d", name, got, c.atOnce)
		}
	}
}

func TestLooksAreFewAndComeWhenSilenceMayBeOver(t *testing.T) {
	look := func(l InHand, over time.Duration) (at []time.Duration) {
		for age := First; age < over; age += l.Next(age) {
			at = append(at, age)
		}
		return at
	}
	if n := len(look(InHand{Answering: 1}, 30*time.Second)); n > 16 {
		t.Errorf("%d looks in 30s", n)
	}
	if n := len(look(InHand{Answering: 1}, time.Hour)); n > 80 {
		t.Errorf("%d looks in an hour", n)
	}
	if at := look(InHand{Active: 1, Silent: 5 * time.Second}, 5*time.Second); len(at) > 10 {
		t.Errorf("looks at %v", at)
	}
	if d := (InHand{Active: 3, Silent: 400 * time.Millisecond}).Next(5 * time.Second); d != 400*time.Millisecond+tick {
		t.Errorf("the next look comes after %v, when silence may be over", d)
	}
	if d := (InHand{Active: 3, Unread: 1, Silent: 400 * time.Millisecond}).Next(5 * time.Second); d != 5*time.Second {
		t.Errorf("the next look comes after %v although silence is not enough", d)
	}
}

func TestLookIsQuietWhenOnlyIdleConnectionsAreLeft(t *testing.T) {
	for l, want := range map[InHand]bool{{}: true, {Idle: 5, Took: 1}: true, {Queued: 1}: false, {Handshakes: 1}: false,
		{Unread: 1}: false, {Answering: 1}: false, {Active: 1}: false} {
		if l.Quiet() != want {
			t.Errorf("%+v is quiet: %v", l, !want)
		}
	}
}

// passes does what the kernel's inet_diag_bc_run does.
func passes(code []byte, port uint16) bool {
	left := len(code)
	for left > 0 {
		op := code[len(code)-left:]
		yes := false
		switch op[0] {
		case codeSportFrom:
			yes = port >= native.Uint16(op[6:])
		case codeSportTo:
			yes = port <= native.Uint16(op[6:])
		}
		if yes {
			left -= int(op[1])
		} else {
			left -= int(native.Uint16(op[2:]))
		}
	}
	return left == 0
}

func TestFilterPassesItsPortsOnly(t *testing.T) {
	for n := range 6 {
		var ports []uint16
		for range n {
			ports = append(ports, uint16(rand.N(1<<16)))
		}
		code := portCode(ports)
		for port := range 1 << 16 {
			if want := slices.Contains(ports, uint16(port)); n > 0 && passes(code, uint16(port)) != want {
				t.Fatalf("%v: %d passes: %v", ports, port, !want)
			}
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	head := []byte{16 + inetMessageSize + 6, 0, 0, 0, unix.SOCK_DIAG_BY_FAMILY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	f.Add(append(append(head, make([]byte, inetMessageSize)...), 6, 0, inetSockopt, 0, 1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		v := view{Watch: &Watch{inet: []inetTarget{{Target: Target{Port: 80, Tags: 1, Queues: []uint64{1}}}},
			handshakes: map[uint64]bool{}}}
		var s inetSocket
		var u unixSocket
		var again []byte
		var found [][]byte
		seen, last, err := messages(b, func(m []byte) {
			if parseInet(m, &s) {
				v.see(&s)
			}
			parseUnix(m, &u)
			found = append(found, m)
			again = native.AppendUint32(again, uint32(unix.NLMSG_HDRLEN+len(m)))
			again = append(native.AppendUint16(again, unix.SOCK_DIAG_BY_FAMILY), make([]byte, unix.NLMSG_HDRLEN-6)...)
			again = append(append(again, m...), make([]byte, align(len(m))-len(m))...)
		})
		if seen != (len(found) > 0) || err != nil && !last || len(again) > align(len(b)) {
			t.Fatalf("%d messages, %d bytes of %d: %v, %v, %v", len(found), len(again), len(b), seen, last, err)
		}
		_, last, err = messages(again, func(m []byte) {
			if !bytes.Equal(m, found[0]) {
				t.Errorf("%x became %x", found[0], m)
			}
			found = found[1:]
		})
		if last || err != nil || len(found) > 0 {
			t.Errorf("%d messages do not come back: %v", len(found), err)
		}
	})
}

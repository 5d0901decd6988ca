package diag

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPhaseOfAConnection(t *testing.T) {
	const ms = time.Millisecond
	ago := func(sent, received, acked time.Duration) tcpInfo {
		return tcpInfo{known: true, sent: sent, received: received, acked: acked, bytes: 100, segments: 20, dataIn: 10, dataOut: 10}
	}
	distant := func(i tcpInfo) tcpInfo { i.rtt = 200 * ms; return i }
	fresh := func(age time.Duration, bytes uint64) tcpInfo {
		return tcpInfo{known: true, sent: age, received: age, acked: age, bytes: bytes, segments: 1}
	}
	for name, c := range map[string]struct {
		inetSocket
		want phase
	}{
		"not accepted":                                  {inetSocket{}, queued},
		"not accepted, closed by the client":            {inetSocket{state: closeWait, readable: 9}, queued},
		"accepted, nothing came yet":                    {inetSocket{inode: 1, info: fresh(4999*ms, 0)}, unread},
		"accepted, nothing came for 5 seconds":          {inetSocket{inode: 1, info: fresh(5000*ms, 0)}, idle},
		"accepted, nothing came from far":               {inetSocket{inode: 1, info: distant(fresh(5799*ms, 0))}, unread},
		"accepted, nothing came from far, late":         {inetSocket{inode: 1, info: distant(fresh(5800*ms, 0))}, idle},
		"accepted, and closed by the client":            {inetSocket{state: closeWait, inode: 1, readable: 1, info: fresh(0, 1)}, idle},
		"data wait":                                     {inetSocket{inode: 1, readable: 1, info: ago(5000*ms, 5000*ms, 0)}, unread},
		"data wait, and the end":                        {inetSocket{state: closeWait, inode: 1, readable: 2, info: ago(0, 0, 0)}, unread},
		"the end waits":                                 {inetSocket{state: closeWait, inode: 1, readable: 1, info: ago(900*ms, 901*ms, 0)}, idle},
		"the end waits, and the answer":                 {inetSocket{state: closeWait, inode: 1, readable: 1, info: ago(900*ms, 800*ms, 0)}, answering},
		"unacknowledged":                                {inetSocket{inode: 1, unacked: 1, info: ago(5000*ms, 6000*ms, 0)}, answering},
		"a request without an answer":                   {inetSocket{inode: 1, info: ago(60_000*ms, 30_000*ms, 30_000*ms)}, answering},
		"a first request in the tick of the handshake":  {inetSocket{inode: 1, info: tcpInfo{known: true, sent: 60_000 * ms, received: 60_000 * ms, acked: 1000 * ms, bytes: 9, segments: 9, dataIn: 1}}, answering},
		"the same, half closed":                         {inetSocket{state: closeWait, inode: 1, info: tcpInfo{known: true, sent: 60_000 * ms, received: 60_000 * ms, acked: 1000 * ms, bytes: 9, segments: 9, dataIn: 1}}, answering},
		"just answered":                                 {inetSocket{inode: 1, info: ago(49*ms, 80*ms, 0)}, answering},
		"answered":                                      {inetSocket{inode: 1, info: ago(50*ms, 80*ms, 50*ms)}, idle},
		"just answered to a distant client":             {inetSocket{inode: 1, info: distant(ago(799*ms, 900*ms, 0))}, answering},
		"answered to a distant client":                  {inetSocket{inode: 1, info: distant(ago(800*ms, 900*ms, 0))}, idle},
		"same tick, then acknowledged":                  {inetSocket{inode: 1, info: ago(100*ms, 100*ms, 60*ms)}, idle},
		"same tick, nothing after":                      {inetSocket{inode: 1, info: tcpInfo{known: true, sent: 100 * ms, received: 100 * ms, acked: 100 * ms, bytes: 9, segments: 12, dataIn: 10, dataOut: 9}}, answering},
		"same tick, nothing after for long":             {inetSocket{inode: 1, info: tcpInfo{known: true, sent: 5000 * ms, received: 5000 * ms, acked: 5000 * ms, bytes: 9, segments: 12, dataIn: 10, dataOut: 9}}, idle},
		"same tick, each answer acknowledged":           {inetSocket{inode: 1, info: ago(100*ms, 100*ms, 100*ms)}, idle},
		"a first request just answered, or a handshake": {inetSocket{inode: 1, info: tcpInfo{known: true, sent: 999 * ms, received: 1000 * ms, acked: 900 * ms, bytes: 9, segments: 8, dataIn: 5, dataOut: 5}}, answering},
		"a first request answered":                      {inetSocket{inode: 1, info: tcpInfo{known: true, sent: 1000 * ms, received: 1001 * ms, acked: 900 * ms, bytes: 9, segments: 8, dataIn: 5, dataOut: 5}}, idle},
		"same tick, the only request":                   {inetSocket{inode: 1, info: tcpInfo{known: true, sent: 1000 * ms, received: 1000 * ms, acked: 1000 * ms, bytes: 9, segments: 1, dataIn: 1, dataOut: 1}}, idle},
		"greeted, and silent":                           {inetSocket{inode: 1, info: tcpInfo{known: true, sent: 60 * ms, received: 90 * ms, dataOut: 1}}, idle},
		"greeted":                                       {inetSocket{inode: 1, info: tcpInfo{known: true, sent: 40 * ms, received: 90 * ms, dataOut: 1}}, answering},
		"greeted while the clock stood still":           {inetSocket{inode: 1, info: tcpInfo{known: true, sent: 60 * ms, received: 60 * ms, dataOut: 1}}, idle},
		"the kernel says nothing of its history":        {inetSocket{inode: 1}, answering},
	} {
		if c.state == 0 {
			c.state = established
		}
		if got := c.phase(); got != c.want {
			t.Errorf("%s: phase %d, want %d", name, got, c.want)
		}
	}
}

func TestPhaseOfAUnixConnection(t *testing.T) {
	for name, c := range map[string]struct {
		unixSocket
		want phase
	}{
		"not accepted":                        {unixSocket{queue: 5}, queued},
		"data wait":                           {unixSocket{inode: 1, queue: 5}, unread},
		"data wait, closed by the client":     {unixSocket{inode: 1, queue: 5, peerGone: true}, unread},
		"nothing waits":                       {unixSocket{inode: 1}, answering},
		"nothing waits, closed by the client": {unixSocket{inode: 1, peerGone: true}, idle},
	} {
		if got := c.phase(); got != c.want {
			t.Errorf("%s: phase %d, want %d", name, got, c.want)
		}
	}
}

func TestLookIsQuietWhenOnlyIdleConnectionsAreLeft(t *testing.T) {
	for l, want := range map[Look]bool{{}: true, {Idle: 5, Took: 1}: true, {Queued: 1}: false, {Handshakes: 1}: false, {Unread: 1}: false, {Answering: 1}: false} {
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
		v := view{Watch: &Watch{inet: []inetTarget{{Target: Target{Port: 80, Tags: 1, Queues: []uint64{1}}}}, handshakes: map[uint64]bool{}}}
		var s inetSocket
		var u unixSocket
		var again []byte
		var found [][]byte
		seen, last, err := messages(b, func(m []byte) {
			if parseInet(m, &s) {
				v.see(&s)
			}
			if parseUnix(m, &u) {
				u.phase()
			}
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

// BenchmarkLook shows what a look at many connections costs, and what part of it each connection has.
func BenchmarkLook(b *testing.B) {
	for _, connections := range []int{0, 1000, 9000} {
		b.Run(strconv.Itoa(connections), func(b *testing.B) {
			var limit unix.Rlimit
			if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur < uint64(2*connections+100) {
				b.Skip("too few descriptors")
			}
			n := openTCP(b, 1)
			for range connections {
				n.pair(b)
			}
			w := n.watch()
			for b.Loop() {
				look(b, w)
			}
			if connections > 0 {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*connections), "ns/connection")
			}
		})
	}
}

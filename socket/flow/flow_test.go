package flow

import (
	"encoding/binary"
	"errors"
	"flag"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
)

var long = flag.Bool("long", false, "100,000 flows instead of 10,000")

func newTable(t testing.TB, flows int) *Flows {
	t.Helper()
	table, err := New(flows)
	if errors.Is(err, ErrPrivilege) || errors.Is(err, unix.ENOSYS) {
		t.Skip(err)
	}
	must.Do(t, err)
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return table
}

// network is a way for datagrams from clients to a listener.
type network struct {
	listens, sends int // families
	bind, from     unix.Sockaddr
	only           int // IPV6_V6ONLY of the listener
	addresses      int // that a client can send from
}

var (
	loopback4 = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	loopback6 = &unix.SockaddrInet6{Addr: [16]byte{15: 1}}
	networks  = map[string]network{
		"IPv4":              {unix.AF_INET, unix.AF_INET, loopback4, &unix.SockaddrInet4{}, 0, 1 << 16},
		"IPv6":              {unix.AF_INET6, unix.AF_INET6, loopback6, loopback6, 1, 1},
		"dual stack, by v4": {unix.AF_INET6, unix.AF_INET, &unix.SockaddrInet6{}, &unix.SockaddrInet4{}, 0, 1 << 16},
		"dual stack, by v6": {unix.AF_INET6, unix.AF_INET6, &unix.SockaddrInet6{}, loopback6, 0, 1},
	}
)

func bound(t testing.TB, family int, at unix.Sockaddr, share, only int) (fd int, name unix.Sockaddr) {
	t.Helper()
	fd = must.Get(unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))(t)
	t.Cleanup(func() { unix.Close(fd) })
	if family == unix.AF_INET6 {
		must.Do(t, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only))
	}
	if share > 0 {
		unit.BindShared(t, fd, at)
	} else {
		must.Do(t, unix.Bind(fd, at))
	}
	return fd, must.Get(unix.Getsockname(fd))(t)
}

// field is a listener of some lanes, and clients.
type field struct {
	testing.TB
	network
	lanes   []int // descriptors
	clients []int
	to      unix.Sockaddr
	sent    int
}

func newField(t testing.TB, n network, lanes, clients int) *field {
	t.Helper()
	f := &field{TB: t, network: n}
	at := n.bind
	for range lanes {
		fd, name := bound(t, n.listens, at, 1, n.only)
		f.lanes, at = append(f.lanes, fd), name
	}
	port := 0
	switch a := at.(type) {
	case *unix.SockaddrInet4:
		port = a.Port
	case *unix.SockaddrInet6:
		port = a.Port
	}
	f.to = &unix.SockaddrInet4{Addr: loopback4.Addr, Port: port}
	if n.sends == unix.AF_INET6 {
		f.to = &unix.SockaddrInet6{Addr: loopback6.Addr, Port: port}
	}
	for range clients {
		fd, _ := bound(t, n.sends, n.from, 0, 0)
		f.clients = append(f.clients, fd)
	}
	return f
}

// table returns a table for so many flows that steers to the lanes.
func (f *field) table(flows int) *Flows {
	f.Helper()
	table := newTable(f, flows)
	for lane := range f.lanes {
		table.Place(lane, lane)
	}
	must.Do(f, table.Attach(f.lanes[0]))
	return table
}

// flows is how many flows the clients can have.
func (f *field) flows() int { return len(f.clients) * f.addresses }

// send sends a datagram of a flow, from an address and a port that no other has.
func (f *field) send(flow int) {
	f.Helper()
	var source []byte
	if f.addresses > 1 {
		from := flow / len(f.clients)
		info := unix.Inet4Pktinfo{Spec_dst: [4]byte{127, 1, byte(from >> 8), byte(from)}}
		source = unix.PktInfo4(&info)
	}
	err := unix.Sendmsg(f.clients[flow%len(f.clients)], binary.NativeEndian.AppendUint32(nil, uint32(flow)), source, f.to,
		0)
	must.Do(f, err)
	f.sent++
}

// take reads all that was sent. On the loopback device it has arrived by then, unless the kernel is busy.
func (f *field) take(each func(lane, flow int)) {
	f.Helper()
	for f.sent > 0 {
		fds := make([]unix.PollFd, len(f.lanes))
		for i, fd := range f.lanes {
			fds[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		}
		if n, err := unix.Poll(fds, int(patience.Milliseconds())); n == 0 {
			f.Fatalf("%d datagrams have not arrived after %v", f.sent, patience)
		} else if err != nil && !errors.Is(err, unix.EINTR) {
			f.Fatal(err)
		}
		f.read(each)
	}
}

const patience = 30 * time.Second

// read reads what has come.
func (f *field) read(each func(lane, flow int)) {
	f.Helper()
	var b [8]byte
	for lane, fd := range f.lanes {
		for n, err := unix.Read(fd, b[:]); !errors.Is(err, unix.EAGAIN); n, err = unix.Read(fd, b[:]) {
			if err != nil || n != 4 {
				f.Fatalf("lane %d: %d bytes, %v", lane, n, err)
			}
			f.sent--
			each(lane, int(binary.NativeEndian.Uint32(b[:])))
		}
	}
}

// TestFlowsStayAtTheirGeneration has 20 reloads. Every flow sends once between two of them, and some are new each time.
// A generation drains for some reloads, then it ends, and its flows begin anew at the one that serves.
func TestFlowsStayAtTheirGeneration(t *testing.T) {
	const lanes, reloads = 8, 20
	for name, n := range networks {
		t.Run(name, func(t *testing.T) {
			clients := 50
			if n.addresses == 1 {
				clients = 400
			}
			f := newField(t, n, lanes, clients)
			flows := min(f.flows(), 10_000)
			if *long {
				flows = min(f.flows(), 100_000)
			}
			table := f.table(4*flows + 1024)
			at := make([]int, flows) // the reload that made the generation of the flow, and 1; 0: it is new
			wrong := 0
			for reload := range reloads + 1 {
				table.Begin(reload % lanes)
				table.Steer([]Lot{{reload % lanes, 1}})
				ended := reload - lanes/2
				if ended >= 0 {
					table.End(ended % lanes)
				}
				check := func(lane, flow int) {
					if at[flow] == 0 || at[flow] <= ended+1 {
						at[flow] = reload + 1
					}
					if lane != (at[flow]-1)%lanes {
						wrong++
					}
				}
				for flow := range flows - flows/2*(reloads-reload)/reloads {
					if f.send(flow); f.sent == 100 {
						f.take(check)
					}
				}
				f.take(check)
			}
			if wrong > 0 {
				t.Errorf("%d datagrams at a wrong generation", wrong)
			}
		})
	}
}

// TestCanaryGetsItsShareOfFlows and keeps them when the share is taken away.
func TestCanaryGetsItsShareOfFlows(t *testing.T) {
	f := newField(t, networks["IPv4"], 2, 10)
	table := f.table(10_000)
	table.Begin(0)
	table.Begin(1)
	at := map[int]int{}
	canaries := 0
	for _, shares := range [][]Lot{{{0, 3}, {1, 1}}, {{0, 1}}} {
		table.Steer(shares)
		for begin := 0; begin < 4000; begin += 100 {
			for flow := range 100 {
				f.send(begin + flow)
			}
			f.take(func(lane, flow int) {
				if before, known := at[flow]; known && before != lane {
					t.Fatalf("flow %d moves from %d to %d", flow, before, lane)
				} else if !known {
					canaries += lane
				}
				at[flow] = lane
			})
		}
	}
	if canaries < 850 || canaries > 1150 {
		t.Errorf("the canary gets %d of 4000 flows instead of a quarter", canaries)
	}
}

// TestLaneKnowsWhenItWasUsed compares with the clock that the kernel uses, before and after a datagram.
func TestLaneKnowsWhenItWasUsed(t *testing.T) {
	f := newField(t, networks["IPv4"], 2, 1)
	table := f.table(1000)
	table.Begin(1)
	table.Steer([]Lot{{1, 1}})
	now := func() int64 {
		var ts unix.Timespec
		must.Do(t, unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &ts))
		return ts.Nano()
	}
	before := now()
	f.send(0)
	f.take(func(int, int) {})
	after := now()
	if seen := int64(table.seen[1].Load()); seen < before || seen > after {
		t.Errorf("the datagram was seen at %d, not from %d to %d", seen, before, after)
	}
	if silent := int64(table.Silence(1)()); silent < 0 || silent > now()-before {
		t.Errorf("it is said to be silent for %d ns", silent)
	}
	if seen := table.seen[0].Load(); seen != 0 {
		t.Errorf("a lane without datagrams was used at %d", seen)
	}
}

// TestStateIsAligned because other programs wait for these words to change at once.
func TestStateIsAligned(t *testing.T) {
	if at := unsafe.Offsetof(page{}.seen); at%8 != 0 || unsafe.Sizeof(page{})%8 != 0 {
		t.Errorf("seen is at %d of %d", at, unsafe.Sizeof(page{}))
	}
}

// BenchmarkDatagram sends a datagram over the loopback device and reads it: at one socket, in a group that the kernel
// divides by a hash, in one with a classic program that always returns the same member, and with a table. On a busy
// machine the CPU time says more than the time. The kernel itself says what the program of a table takes.
func BenchmarkDatagram(b *testing.B) {
	const flows = 5000
	constant := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	for _, mode := range []struct {
		name   string
		lanes  int
		attach func(f *field) error
	}{
		{"socket", 1, func(*field) error { return nil }},
		{"group", 4, func(*field) error { return nil }},
		{"classic", 4, func(f *field) error {
			return unix.SetsockoptSockFprog(f.lanes[0], unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
				&unix.SockFprog{Len: 1, Filter: &constant[0]})
		}},
		{"flow", 4, func(f *field) error {
			table := newTable(b, 32*flows)
			table.Begin(0)
			table.Steer([]Lot{{0, 1}})
			if stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME); err == nil { // with CAP_SYS_ADMIN
				b.Cleanup(func() {
					if s, err := table.program.Stats(); err == nil {
						b.Logf("the program takes %v", s.Runtime/time.Duration(max(1, s.RunCount)))
					}
					stats.Close()
				})
			}
			return table.Attach(f.lanes[0])
		}},
	} {
		b.Run(mode.name, func(b *testing.B) {
			f := newField(b, networks["IPv4"], mode.lanes, 50)
			must.Do(b, mode.attach(f))
			flow, before := 0, cpuTime(b)
			for b.Loop() {
				f.send(flow)
				if flow = (flow + 1) % flows; f.sent == 100 {
					f.take(func(int, int) {})
				}
			}
			f.take(func(int, int) {})
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func cpuTime(b *testing.B) int64 {
	var ts unix.Timespec
	must.Do(b, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts))
	return ts.Nano()
}

package diag

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The parts of linux/inet_diag.h that are used here.
const (
	inetRequestSize = 56 // struct inet_diag_req_v2
	inetSport       = 8  // … id.idiag_sport, in network order
	inetMessageSize = 72 // struct inet_diag_msg

	inetRequestBytecode = 1 // INET_DIAG_REQ_BYTECODE
	inetInfo            = 2 // INET_DIAG_INFO
	inetShutdown        = 8
	inetSockopt         = 22

	codeJump      = 1 // INET_DIAG_BC_JMP
	codeSportFrom = 2 // INET_DIAG_BC_S_GE
	codeSportTo   = 3 // INET_DIAG_BC_S_LE
)

// States of a TCP socket (tcp_states.h), as bits of a request.
const (
	established = 1
	synReceived = 3
	closeWait   = 8
	lastAck     = 9
	listening   = 10

	// openStates are those in which a process can still have a socket that was once established.
	openStates = 1<<established | 1<<4 | 1<<5 | 1<<closeWait | 1<<lastAck | 1<<11
	// watchedStates are those in which something can be in hand, and the listening sockets.
	watchedStates = 1<<established | 1<<synReceived | 1<<closeWait | 1<<listening
)

// inetRequest asks for the TCP sockets of a family that are in one of states and have one of ports, and for some
// extensions (bit set).
func inetRequest(family byte, states uint32, extensions byte, ports []uint16) []byte {
	request := make([]byte, inetRequestSize)
	request[0], request[1], request[2] = family, unix.IPPROTO_TCP, extensions
	native.PutUint32(request[4:], states)
	if len(ports) == 1 {
		binary.BigEndian.PutUint16(request[inetSport:], ports[0])
		return request
	}
	code := portCode(ports)
	request = native.AppendUint16(request, uint16(unix.NLA_HDRLEN+len(code)))
	request = native.AppendUint16(request, inetRequestBytecode)
	return append(request, code...)
}

// portCode is a filter that lets sockets with one of these local ports pass: for each port "at least, at most, then
// done", else the next one. Jumps are distances from the instruction that jumps; to the end of the code is to pass, and
// beyond it is not to.
func portCode(ports []uint16) (code []byte) {
	const compare, jump = 8, 4
	const block = 2*compare + jump
	op := func(what, yes byte, no int, port uint16) {
		code = append(code, what, yes)
		code = native.AppendUint16(code, uint16(no))
		if what != codeJump {
			code = append(code, 0, 0)
			code = native.AppendUint16(code, port)
		}
	}
	for i, port := range ports {
		left := block*(len(ports)-i) - jump // from the beginning of this block to the end: the last one needs no jump
		next := block
		if i == len(ports)-1 {
			next = left + jump
		}
		op(codeSportFrom, compare, next, port)
		op(codeSportTo, compare, next-compare, port)
		if i < len(ports)-1 {
			op(codeJump, jump, left-2*compare, 0)
		}
	}
	return code
}

// inetSocket is what one message says about a TCP socket.
type inetSocket struct {
	family             byte
	state, retransmits byte
	port               uint16
	source             [16]byte // IPv4 addresses are mapped
	device             uint32   // the network interface that the socket is bound to; 0: none
	cookie             uint64   // the same from the handshake on
	readable, unacked  uint32   // bytes; of a listening socket: the queue and its limit
	inode              uint32   // 0: no process has it
	tag                int
	tagged             bool // tag is known
	over               bool // somebody has called shutdown(2)
	info               tcpInfo
}

// tcpInfo is the part of struct tcp_info that is used here.
type tcpInfo struct {
	known           bool
	sent, received  time.Duration // how long ago data were last sent and received; from the handshake if never
	acked           time.Duration // how long ago the client last acknowledged anything, also by sending data
	bytes           uint64        // received, with the FIN
	dataIn, dataOut uint32        // segments with data
}

// parseInet reads a message into s.
func parseInet(m []byte, s *inetSocket) bool {
	if len(m) < inetMessageSize {
		return false
	}
	*s = inetSocket{family: m[0], state: m[1], retransmits: m[3], port: binary.BigEndian.Uint16(m[4:]),
		device:   native.Uint32(m[40:]),
		cookie:   uint64(native.Uint32(m[44:])) | uint64(native.Uint32(m[48:]))<<32,
		readable: native.Uint32(m[56:]), unacked: native.Uint32(m[60:]), inode: native.Uint32(m[68:])}
	if m[0] == unix.AF_INET {
		s.source = [16]byte{10: 0xff, 11: 0xff}
		copy(s.source[12:], m[8:12])
	} else {
		copy(s.source[:], m[8:24])
	}
	attributes(m[inetMessageSize:], func(kind uint16, value []byte) {
		switch kind {
		case inetInfo:
			s.info = parseInfo(value)
		case inetShutdown:
			s.over = len(value) == 1 && value[0] != 0
		case inetSockopt:
			s.tag, s.tagged = tagOf(value)
		}
	})
	return true
}

// parseInfo reads a struct tcp_info, as far as Linux 4.6 had it.
func parseInfo(b []byte) tcpInfo {
	if len(b) < 160 {
		return tcpInfo{}
	}
	ms := func(at int) time.Duration { return time.Duration(native.Uint32(b[at:])) * time.Millisecond }
	return tcpInfo{known: true, sent: ms(44), received: ms(52), acked: ms(56), bytes: native.Uint64(b[128:]),
		dataIn: native.Uint32(b[152:]), dataOut: native.Uint32(b[156:])}
}

// dumpInet passes the TCP sockets of a family to see. A kernel without IPv6 has none of that family.
func dumpInet(request, buf []byte, see func(s *inetSocket)) (datagrams int, err error) {
	var s inetSocket
	datagrams, err = ask(request, unix.NLM_F_DUMP, buf, func(m []byte) {
		if parseInet(m, &s) {
			see(&s)
		}
	})
	if request[0] == unix.AF_INET6 && errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return datagrams, err
}

// dumpPort passes the TCP sockets of both families to see that are in one of states and have the local port; 0: any.
func dumpPort(states uint32, extensions byte, port uint16, see func(s *inetSocket)) error {
	buf := make([]byte, datagram)
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if _, err := dumpInet(inetRequest(family, states, extensions, []uint16{port}), buf, see); err != nil {
			return err
		}
	}
	return nil
}

// TCPInodes passes the inodes of the open connections on a local port to see, also those on which no process has
// accepted them yet: 0. The kernel still knows some connections that their process has closed: 0, too.
func TCPInodes(port uint16, see func(inode uint64)) error {
	return dumpPort(openStates, 0, port, func(s *inetSocket) { see(uint64(s.inode)) })
}

// TCPQueued returns for how long at least one of the connections on a local port has waited that no process has
// accepted: its client has sent nothing since then. 0: there is none.
func TCPQueued(port uint16) (longest time.Duration, err error) {
	err = dumpPort(1<<established|1<<closeWait, 1<<(inetInfo-1), port, func(s *inetSocket) {
		if s.inode == 0 && s.info.known {
			longest = max(longest, s.info.received)
		}
	})
	return longest, err
}

// UnixListeners passes the inodes and paths of all listening sockets to see, for people to read: proc_net(5). A path is
// as it was bound; "" is none, and "@" begins an abstract name.
func UnixListeners(see func(inode uint64, path string)) error {
	const accepts = 1 << 16 // __SO_ACCEPTCON, linux/net.h
	text, err := os.ReadFile("/proc/thread-self/net/unix")
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // number, references, protocol, flags, type, state, inode, path
		if len(fields) < 7 {
			continue
		}
		flags, _ := strconv.ParseUint(fields[3], 16, 32) //nolint:errcheck // the kernel writes them
		if inode, err := strconv.ParseUint(fields[6], 10, 64); err == nil && flags&accepts != 0 {
			see(inode, strings.Join(fields[7:], " "))
		}
	}
	return err
}

// Listening is a listening TCP socket.
type Listening struct {
	Inode  uint64
	At     netip.AddrPort
	Device uint32 // the network interface that it is bound to; 0: none
	// Over: a process called shutdown(2) before listen(2). Each connection that is accepted reads as ended, and its
	// client gets no answer.
	Over bool
}

// Listeners returns the sockets of all processes of this network namespace that listen on a port; 0: on any.
func Listeners(port uint16) (all []Listening, err error) {
	err = dumpPort(1<<listening, 0, port, func(s *inetSocket) {
		ip := netip.AddrFrom16(s.source)
		if s.family == unix.AF_INET {
			ip = ip.Unmap()
		}
		all = append(all, Listening{uint64(s.inode), netip.AddrPortFrom(ip, s.port), s.device, s.over})
	})
	return all, err
}

// lineOfTCP is less than a line of /proc/net/tcp.
const lineOfTCP = 128

// Occupied returns which of these listening TCP sockets of this network namespace, by their inodes, have a handshake
// under way or a connection that waits to be accepted: each of these has a reference to its socket, and nothing else
// has but the socket itself. Only /proc/net/tcp, or tcp6 for sockets of IPv6, shows that count (proc_net_tcp.rst of the
// kernel's documentation). A handshake for which the kernel keeps nothing but a SYN cookie is of no socket until it
// ends.
//
// Behind the listening sockets the file has the table of all connections, whose empty buckets alone take milliseconds.
// Occupied reads a line at a time, and no more when it has seen the sockets. But the kernel always looks for the line
// after the one that it returns, so the last listening socket costs these milliseconds.
func Occupied(inodes []uint64, ip6 bool) (map[uint64]bool, error) {
	occupied := map[uint64]bool{}
	err := table(inodes, true, ip6, func(inode uint64, fields []string) { occupied[inode] = fields[10] != "1" })
	return occupied, err
}

// unanswered counts the connections among these, by their inodes, on which the client has spoken last, more than 200
// ms ago, if all were answered at once before. A socket whose process answers at once has the mark of an interactive
// session ("pingpong"). It loses the mark when data have no answer for up to 200 ms, so that the kernel acknowledges
// them by itself. Only /proc/net/tcp shows the mark. Before Linux 5.19 a socket gets the mark by its third answer, so
// some that have been answered count. A request of many segments may be acknowledged sooner, which leaves the mark.
func unanswered(inodes []uint64, ip6 bool) (n int, err error) {
	err = table(inodes, false, ip6, func(_ uint64, fields []string) {
		mark, err := strconv.ParseUint(fields[14], 10, 32)
		if err == nil && mark&1 == 0 {
			n++
		}
	})
	return n, err
}

// table passes the lines of these TCP sockets in /proc/net/tcp, or tcp6, to see (proc_net_tcp.rst of the kernel's
// documentation). listen says that they are listening sockets: these come first.
func table(inodes []uint64, listen, ip6 bool, see func(inode uint64, fields []string)) error {
	left := map[uint64]bool{}
	for _, inode := range inodes {
		left[inode] = true
	}
	if len(left) == 0 {
		return nil
	}
	name := "tcp"
	if ip6 {
		name = "tcp6"
	}
	f, err := os.Open("/proc/thread-self/net/" + name)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, lineOfTCP), bufio.MaxScanTokenSize) // grows to what a line needs
	for len(left) > 0 && lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 15 || fields[0] == "sl" {
			continue // the heading, or a socket without a process
		}
		if listen && fields[3] != "0A" {
			break // TCP_LISTEN
		}
		inode, err := strconv.ParseUint(fields[9], 10, 64)
		if err == nil && left[inode] {
			delete(left, inode)
			see(inode, fields)
		}
	}
	return lines.Err()
}

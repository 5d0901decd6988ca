package diag

import (
	"bytes"
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// The parts of linux/unix_diag.h that are used here.
const (
	unixRequestSize = 24 // struct unix_diag_req
	unixMessageSize = 16 // struct unix_diag_msg

	unixShowName  = 0x01
	unixShowVFS   = 0x02
	unixShowPeer  = 0x04
	unixShowQueue = 0x10

	unixAttrName  = 0
	unixAttrVFS   = 1
	unixAttrPeer  = 2
	unixAttrQueue = 4
)

// unixSocket is what one message says about a unix socket.
type unixSocket struct {
	inode uint32 // 0: not accepted yet
	peer  uint32 // the inode of the other end
	file  unixFile
	// of a listening socket: connections; else bytes to read, and bytes that the other side has not read
	queue, limit uint32
	queueKnown   bool
	name         []byte
}

// unixFile tells which file a socket was bound to; a connection has that of the listening socket. It is what only
// unix_diag shows: on some file systems stat(2) gives other numbers.
type unixFile struct{ inode, device uint32 }

func parseUnix(m []byte, s *unixSocket) bool {
	if len(m) < unixMessageSize {
		return false
	}
	*s = unixSocket{inode: native.Uint32(m[4:])}
	attributes(m[unixMessageSize:], func(kind uint16, value []byte) {
		switch {
		case kind == unixAttrName:
			s.name = value
		case kind == unixAttrPeer && len(value) >= 4:
			s.peer = native.Uint32(value)
		case kind == unixAttrVFS && len(value) >= 8:
			s.file = unixFile{native.Uint32(value), native.Uint32(value[4:])}
		case kind == unixAttrQueue && len(value) >= 8:
			s.queue, s.limit, s.queueKnown = native.Uint32(value), native.Uint32(value[4:]), true
		}
	})
	return true
}

// askUnix asks for the unix sockets in some states (bit set), or with NLM_F_DUMP not set for the one with an inode.
func askUnix(states, inode, show uint32, flags uint16, buf []byte, see func(s *unixSocket)) error {
	request := make([]byte, 0, unixRequestSize)
	request = append(request, unix.AF_UNIX, 0, 0, 0)
	for _, v := range []uint32{states, inode, show, ^uint32(0), ^uint32(0)} { // the cookie is not known
		request = native.AppendUint32(request, v)
	}
	var s unixSocket
	_, err := ask(request, flags, buf, func(m []byte) {
		if parseUnix(m, &s) {
			see(&s)
		}
	})
	return err
}

// bound is the name under which a socket was bound; an abstract one begins with "@", as in unix.SockaddrUnix. A
// connection has that of the listening socket.
func (s *unixSocket) bound() string {
	if name, abstract := bytes.CutPrefix(s.name, []byte{0}); abstract {
		return "@" + string(name)
	}
	return string(bytes.TrimSuffix(s.name, []byte{0}))
}

// UnixInodes passes the inodes of the connections that were accepted from a listening unix socket that was bound under
// the name to see. Connections that wait to be accepted have inode 0.
func UnixInodes(name string, see func(inode uint64)) error {
	return askUnix(1<<established, 0, unixShowName, unix.NLM_F_DUMP, make([]byte, datagram), func(s *unixSocket) {
		if s.bound() == name {
			see(uint64(s.inode))
		}
	})
}

// AddUnix adds the connections that were accepted from listening unix sockets that were bound under these names, and of
// which a process holds the socket with one of these inodes. The kernel does not show how much they have carried, nor
// when: each whose other end is open is Active, or Unread.
func (l *InHand) AddUnix(names []string, held map[uint64]bool) error {
	return askUnix(1<<established, 0, unixShowName|unixShowPeer|unixShowQueue, unix.NLM_F_DUMP, make([]byte, datagram),
		func(s *unixSocket) {
			switch {
			case s.peer == 0 || !held[uint64(s.inode)] || !slices.Contains(names, s.bound()):
			case s.queue > 0:
				l.Unread++
			default:
				l.Active++
			}
		})
}

// UnixQueue returns how many connections wait to be accepted from the listening unix socket with this inode, and how
// many can.
func UnixQueue(inode uint64) (waiting, limit int, err error) {
	known := false
	err = askUnix(1<<listening, uint32(inode), unixShowQueue, 0, make([]byte, datagram), func(s *unixSocket) {
		waiting, limit, known = int(s.queue), int(s.limit), s.queueKnown
	})
	if err == nil && !known {
		err = errors.New("the kernel does not say how long the queue of a unix socket is")
	}
	return waiting, limit, err
}

// BoundTo returns the number of the inode, in its file system, to which a listening unix socket was bound; the socket
// is given by its own inode.
func BoundTo(socket uint64) (number uint32, err error) {
	found := false
	err = askUnix(1<<listening, uint32(socket), unixShowVFS, 0, make([]byte, datagram), func(s *unixSocket) {
		number, found = s.file.inode, s.file != unixFile{}
	})
	if err == nil && !found {
		err = errors.New("the kernel does not say to which file a unix socket was bound")
	}
	return number, err
}

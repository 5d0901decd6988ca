package graceful

import (
	"net"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/diag"
)

// unknownHandshakes is how long handshakes are assumed to last where the kernel cannot be asked (a sandbox without
// netlink).
const unknownHandshakes = time.Second

// handshakes are those on a TCP port that were under way at one moment: the kernel has answered a SYN, and the client's
// ACK is still to come. Nothing else shows them. A client 20 ms away needs 20 ms.
type handshakes struct {
	watch *diag.Watch // nil: there are none, or they are unknown
	since time.Time   // zero: there are none
}

// underWay returns the handshakes of a listener that are under way at the first call of left.
func underWay(ln net.Listener) *handshakes {
	at, is := ln.Addr().(*net.TCPAddr)
	if !is {
		return &handshakes{}
	}
	h := &handshakes{since: time.Now()}
	if inode := inodeOf(ln); inode != 0 {
		h.watch = diag.NewWatch([]diag.Target{{Port: uint16(at.Port), Queues: []uint64{inode}}}, 0)
	}
	return h
}

// left reports whether any of them continues.
func (h *handshakes) left() bool {
	switch {
	case h.since.IsZero():
		return false
	case h.watch != nil:
		if look, err := h.watch.Look(); err == nil {
			return look.Handshakes > 0
		}
	}
	return time.Since(h.since) < unknownHandshakes
}

// inodeOf returns the inode of a socket; 0: unknown.
func inodeOf(ln net.Listener) uint64 {
	var st unix.Stat_t
	if onDescriptor(ln, func(fd int) error { return unix.Fstat(fd, &st) }) != nil {
		return 0
	}
	return st.Ino
}

package graceful

import (
	"net"
	"time"

	"example.org/supervisord/socket/diag"
)

// unknownHandshakes is how long handshakes are taken to go on where the kernel cannot be asked (a sandbox without netlink).
const unknownHandshakes = time.Second

// handshakes are those on one TCP port that were under way at one moment: the kernel has answered a SYN, and the client's ACK is
// still to come. Nothing else shows them; a client 20 ms away needs 20 ms.
type handshakes struct {
	watch *diag.Watch // nil: there are none
	since time.Time
}

// underWay looks at the handshakes now.
func underWay(at net.Addr) *handshakes {
	h := &handshakes{since: time.Now()}
	if tcp, is := at.(*net.TCPAddr); is {
		h.watch = diag.NewWatch([]diag.Target{{Port: uint16(tcp.Port)}})
	}
	return h
}

// left reports whether any of them goes on. Call it for the first time right after underWay.
func (h *handshakes) left() bool {
	if h.watch == nil {
		return false
	}
	look, err := h.watch.Look()
	if err != nil {
		return time.Since(h.since) < unknownHandshakes
	}
	return look.Handshakes > 0
}

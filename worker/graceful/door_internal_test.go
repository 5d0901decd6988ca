package graceful

import (
	"net"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
)

// late is a listener whose process gets no processor for a while: a connection comes before the deadline of Accept,
// which is noticed first.
type late struct {
	*net.TCPListener
	t       *testing.T
	arrives bool
}

func (l *late) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil && !l.arrives {
		l.arrives = true
		client, dialled := net.Dial("tcp", l.Addr().String())
		if dialled != nil {
			l.t.Error(dialled)
			return c, err
		}
		l.t.Cleanup(func() { client.Close() })
	}
	return c, err
}

func TestConnectionThatComesWithTheLastDeadlineIsAccepted(t *testing.T) {
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	d := &door{Listener: &late{TCPListener: ln.(*net.TCPListener), t: t}, accepting: func() {}, open: newConns()}
	d.stops = time.Now()
	c, err := d.Accept()
	if err != nil {
		t.Fatalf("the connection stays in the queue: %v", err)
	}
	c.Close()
	if c, err := d.Accept(); err == nil {
		c.Close()
		t.Error("another connection is accepted")
	}
}

func TestWhatWaitsIsAcceptedAlsoByAProcessThatWasStopped(t *testing.T) {
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	d := &door{Listener: ln, accepting: func() {}, open: newConns()}
	for range 2 {
		client := must.Get(net.Dial("tcp", ln.Addr().String()))(t)
		defer client.Close()
	}
	d.stops = time.Now().Add(-2 * lastHandshake)
	for range 2 {
		c, err := d.Accept()
		if err != nil {
			t.Fatalf("a connection stays in the queue: %v", err)
		}
		c.Close()
	}
	if c, err := d.Accept(); err == nil {
		c.Close()
		t.Error("another connection is accepted")
	}
}

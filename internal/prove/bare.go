package prove

import (
	"io"
	"net"
	"net/http"
	"time"
)

// bare connects, says that it has nothing to say (FIN), and waits until the worker closes too: so it knows that somebody took
// the connection out of the queue. Where the worker does not answer a FIN (patient is false) it only connects.
type bare struct {
	wire
	patient bool
}

// RoundTrip is one connection. Its answer is an empty one with status 200.
func (b *bare) RoundTrip(r *http.Request) (*http.Response, error) {
	var n note
	n.paused, n.loss = b.visit(r)
	b.keepNote(r, n)
	if n.loss != nil {
		return nil, n.loss
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func (b *bare) visit(r *http.Request) (paused time.Duration, _ *loss) {
	c, err := b.connect(r.Context())
	if err != nil {
		return 0, lost(err, false)
	}
	defer b.drop(c)
	paused, l := b.pause()
	if l != nil || !b.patient {
		return paused, l
	}
	if err := farewell(c, b.timeout); err != nil {
		return paused, lost(err, false)
	}
	return paused, nil
}

func (b *bare) close() { b.abandon() }

// farewell ends our half of c and waits for the end of the other.
func farewell(c net.Conn, timeout time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, c)
	return err
}

package traffic

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/tests/soak/account"
)

// messages sends the requests as messages of a WebSocket, each when the one before was answered. After the server's
// goodbye it takes the answer that it waits for, and closes.
func (l *flow) messages() func(time.Time) load.Attempt {
	var c *websocket.Conn
	l.end = func() {
		if c != nil {
			c.Close(websocket.StatusNormalClosure, "") //nolint:errcheck // everything was answered
			c = nil
		}
	}
	return load.Measure(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), l.t.c.timeout)
		defer cancel()
		if c == nil {
			var err error
			if c, err = l.upgrade(ctx); err != nil {
				return err
			}
		}
		leaving, err := l.message(ctx, c)
		switch {
		case err != nil:
			c.CloseNow() //nolint:errcheck // it is lost
			c = nil
		case leaving:
			l.end()
		}
		return err
	})
}

// upgrade makes a WebSocket. Its transport has no other connection, so it sends nothing twice.
func (l *flow) upgrade(ctx context.Context) (*websocket.Conn, error) {
	via := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn,
		error) {
		return l.dial(ctx, new(net.Dialer), network)
	}}}
	options := &websocket.DialOptions{HTTPClient: via}
	c, _, err := websocket.Dial(ctx, "ws://soak/socket", options) //nolint:bodyclose // it is the WebSocket's
	return c, err
}

func (l *flow) message(ctx context.Context, c *websocket.Conn) (leaving bool, err error) {
	if err := c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, "%016x", l.now.ID)); err != nil {
		return false, err
	}
	for {
		_, text, err := c.Read(ctx)
		switch {
		case err != nil:
			return false, err
		case string(text) == account.Bye:
			leaving = true
		default:
			return leaving, l.see(text)
		}
	}
}

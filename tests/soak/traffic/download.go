package traffic

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/tests/soak/account"
)

// What a download is: three to five seconds.
const (
	part     = 64 << 10 // what a slow client reads at a time
	partWait = 100 * time.Millisecond
	parts    = 40
)

// slowly downloads faster than this client reads, so the kernel shows all the time that something is in hand.
func (l *flow) slowly() func(time.Time) load.Attempt {
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if refused := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF,
				part)
		}); refused != nil {
			return refused
		}
		return err
	}}
	l.sender.Dial = func(ctx context.Context) (net.Conn, error) { return l.dial(ctx, &dialer, "tcp") }
	return l.download(fmt.Sprintf("size=%d", parts*part), partWait)
}

// paced downloads what the server sends with pauses.
func (l *flow) paced() func(time.Time) load.Attempt {
	return l.download(fmt.Sprintf("size=%d&steps=%d", parts<<10, parts), 0)
}

// inParts downloads what the server sends in three parts, 300 ms or 2 s apart; so long also before the first byte of
// the body.
func (l *flow) inParts() func(time.Time) load.Attempt {
	pause := []string{"300ms", "2s"}[l.number%2]
	return l.download(fmt.Sprintf("size=%d&steps=3&pause=%s", 3<<10, pause), 0)
}

func (l *flow) download(query string, wait time.Duration) func(time.Time) load.Attempt {
	l.sender.Ask = func(c *load.Wire, last bool) (bool, error) {
		r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://soak/download/%016x?%s", l.now.ID, query), nil)
		if err != nil {
			return true, err
		}
		into := &checked{flow: l, wait: wait}
		answer, err := load.Exchange(c, r, last, into)
		switch {
		case err != nil:
			return true, err
		case into.body == nil:
			return true, io.ErrUnexpectedEOF
		}
		return answer.Close, l.good(answer)
	}
	return l.sender.Send
}

// checked compares a download with what it must be, as it comes. The first line says who answers.
type checked struct {
	*flow
	line []byte
	body io.Reader // the rest as it must be; nil: the first line has not ended
	next int       // bytes until the next pause
	wait time.Duration
}

func (d *checked) Write(p []byte) (int, error) {
	n := len(p)
	if d.body == nil {
		line, rest, found := bytes.Cut(p, []byte("\n"))
		if d.line = append(d.line, line...); !found {
			return n, nil
		}
		if err := d.see(d.line); err != nil {
			return 0, err
		}
		d.body, p = account.Body(d.now.ID), rest
	}
	want := make([]byte, len(p))
	if _, err := io.ReadFull(d.body, want); err != nil {
		return 0, err
	}
	if !bytes.Equal(p, want) {
		return 0, d.right(fmt.Errorf("the body is not that of request %016x", d.now.ID))
	}
	if d.next += n; d.next >= part {
		d.next = 0
		time.Sleep(d.wait) // a slow reader has no event to wait for
	}
	return n, nil
}

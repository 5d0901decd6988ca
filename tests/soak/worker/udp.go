package main

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"time"

	"example.org/supervisord/worker/graceful"
)

// datagrams answers each datagram, the number of a request. At TERM it reads no more, although worker/graceful says for
// it that it drains itself: supervisord must not tell it before nothing waits and nothing comes.
func (w *worker) datagrams() error {
	c, err := graceful.PacketConn("dns", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return graceful.Serve(context.Background(), graceful.Work(func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) })() //nolint:errcheck // it is open
		for ctx.Err() == nil {
			if err := w.datagram(c); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
		}
		return nil
	}))
}

func (w *worker) datagram(c net.PacketConn) error {
	var buf [64]byte
	n, from, err := c.ReadFrom(buf[:])
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(string(buf[:n]), 16, 64)
	if err != nil {
		return nil // somebody else's
	}
	e := w.book.Take(portOf(from))
	defer w.book.Drop(e)
	w.book.Begin(e, id)
	if _, err := c.WriteTo(w.text(id), from); err != nil {
		return err
	}
	w.book.End(e, id)
	return nil
}

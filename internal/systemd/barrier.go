package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Flush waits until every message so far has been handed to systemd's socket.
func (n *Notify) Flush(ctx context.Context) error {
	if n.queue == nil {
		return nil
	}
	return n.queue.flush(ctx)
}

// Barrier waits until systemd has handled every message so far: it is sent the end of a pipe and closes that when it gets
// to it (sd_notify_barrier(3)). Other systems that set NOTIFY_SOCKET may never do, so ctx should have a deadline.
func (n *Notify) Barrier(ctx context.Context) error {
	if n.queue == nil {
		return nil
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("cannot make a pipe: %w", err)
	}
	ours := os.NewFile(uintptr(ends[0]), "barrier")
	defer ours.Close()
	sent := make(chan error, 1)
	err := n.queue.post(&message{payload: []byte("BARRIER=1"), fds: []int{ends[1]}, sent: sent})
	unix.Close(ends[1])
	if err != nil {
		return err
	}
	select {
	case err := <-sent:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return notHandled(ctx)
	}
	return awaitClose(ctx, ours)
}

// awaitClose waits until nobody holds the other end of the pipe.
func awaitClose(ctx context.Context, pipe *os.File) error {
	defer context.AfterFunc(ctx, func() { pipe.SetReadDeadline(time.Unix(1, 0)) })()
	_, err := pipe.Read(make([]byte, 1))
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return notHandled(ctx)
	}
	return err
}

func notHandled(ctx context.Context) error {
	return fmt.Errorf("systemd has not handled the notifications: %w", context.Cause(ctx))
}

package graceful

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Conns runs a plain accept loop: handle is called for each connection, which is closed when handle returns. ctx ends
// when the stop begins: handle should then finish its work, say goodbye as its protocol requires, and return. At the
// deadline its connection is closed.
func Conns(ln net.Listener, handle func(ctx context.Context, c net.Conn)) Server {
	return &loop{ln: ln, handle: handle}
}

// loop is a Server of Conns: one goroutine accepts, and one more serves each connection and closes it.
type loop struct {
	ln     net.Listener
	handle func(context.Context, net.Conn)
	busy   sync.WaitGroup
}

func (l *loop) run(st *stop, accepting func()) error {
	d := newDoor(l.ln, st, accepting)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	served := st.serving(func() error {
		return errors.Join(fmt.Errorf("cannot accept on %s: %w", l.ln.Addr(), l.accept(ctx, d)), d.Close())
	})
	d.shut()
	leave()
	return l.drain(st, d, served)
}

// drain waits for the connections until the deadline, and then closes those that are left. served is closed when
// nothing is accepted any more.
func (l *loop) drain(st *stop, d *door, served <-chan struct{}) error {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		<-served
		l.busy.Wait()
	}()
	select {
	case <-drained:
		return nil
	case <-st.over:
	}
	err := d.open.cut(st)
	settle(drained)
	return err
}

// accept waits a little if accept(2) fails for lack of descriptors or memory, as net/http does.
func (l *loop) accept(ctx context.Context, d *door) error {
	var pause time.Duration
	for {
		c, err := d.Accept()
		if err == nil {
			pause = 0
			l.busy.Go(func() { l.one(ctx, c.(*conn)) })
			continue
		}
		var temporary interface{ Temporary() bool }
		if !errors.As(err, &temporary) || !temporary.Temporary() {
			return err
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (l *loop) one(ctx context.Context, c *conn) {
	defer c.Close()
	c.is(Active)
	l.handle(ctx, c)
}

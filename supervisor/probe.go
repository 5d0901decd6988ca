package supervisor

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"

	"example.org/supervisord/socket"
	"example.org/supervisord/worker/ready"
)

// dialer returns what connects a probe to the socket that the worker in a slot of a generation has of a listener: no other generation
// answers, whichever generation serves.
func (p *runner) dialer(g *resources, slot int) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, listener string) (net.Conn, error) {
		var probe *socket.Probe
		var err error
		begun := make(chan struct{})
		select {
		case p.s.calls <- func() { probe, err = p.probe(g, slot, listener); close(begun) }:
			<-begun // the loop does it at once; what has begun must end, also if nobody wants it any more
		case <-p.s.done:
			return nil, ErrStopping
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		end := sync.OnceFunc(func() { p.s.post(probe.End) })
		conn, err := probe.Dial(ctx)
		if err != nil {
			end()
			return nil, err
		}
		return &probeConn{conn, end}, nil
	}
}

func (p *runner) probe(g *resources, slot int, listener string) (*socket.Probe, error) {
	if p.generations[g.number] != g {
		return nil, errors.New("its generation is gone")
	}
	i := g.listener(listener)
	if i < 0 {
		return nil, &ready.Unreachable{Err: errors.New("its generation has no listener " + listener)}
	}
	if why := p.shared(g.lanes[i].Listener); why != "" {
		return nil, &ready.Unreachable{Err: errors.New("no probe can reach one generation on the listener " + listener + ", which is shared: " + why)}
	}
	return g.lanes[i].Probe(slot)
}

// listener returns the place of a listener by its name; -1: the generation has no such listener.
func (g *resources) listener(name string) int {
	return slices.IndexFunc(g.lanes, func(ln *socket.Lane) bool { return ln.Listener.Name == name })
}

// probeConn is the connection of a probe. The kernel sends nothing more to the worker for its sake once it is closed.
type probeConn struct {
	net.Conn
	end func()
}

// NetConn returns the connection itself.
func (c *probeConn) NetConn() net.Conn { return c.Conn }

func (c *probeConn) Close() error {
	err := c.Conn.Close()
	c.end()
	return err
}

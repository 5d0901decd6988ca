package graceful

import (
	"errors"
	"fmt"
	"net"
)

// GRPCServer is what this package needs of a *grpc.Server. The package does not depend on gRPC.
type GRPCServer interface {
	Serve(net.Listener) error
	GracefulStop() // GOAWAY, then wait for the RPCs
	Stop()
}

// GRPC serves srv on ln.
func GRPC(ln net.Listener, srv GRPCServer) Server { return &grpcServer{ln, srv} }

// grpcServer serves one listener, which its door closes.
type grpcServer struct {
	ln  net.Listener
	srv GRPCServer
}

func (g *grpcServer) run(st *stop, accepting func()) error {
	d := newDoor(g.ln, st, accepting)
	served := st.serving(func() error {
		return errors.Join(fmt.Errorf("cannot serve gRPC on %s: %w", g.ln.Addr(), g.srv.Serve(d)), d.Close())
	})
	d.shut()
	return g.drain(st, d, served)
}

// drain calls GracefulStop only when the server has taken up every accepted connection: GracefulStop closes connections
// that are taken up later.
func (g *grpcServer) drain(st *stop, d *door, served <-chan struct{}) error {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		<-served
		d.open.early.Wait()
		g.srv.GracefulStop()
		d.open.seal()
	}()
	if d.open.linger(st.silence(), drained, st.over) {
		// clients that never sent a byte would hold up GracefulStop
		return nil
	}
	err := d.open.cut(st)
	g.srv.Stop()
	settle(drained)
	return err
}

package main

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.org/supervisord/examples/grpc/greeter"
)

// rpcUser calls Greeter.Hello over one client connection of its own.
type rpcUser struct {
	conn    *grpc.ClientConn
	client  greeter.GreeterClient
	request *greeter.HelloRequest
}

// newRPCUsers makes users whose calls last as long as told. dials counts the TCP connections that they open.
func newRPCUsers(n int, address string, length time.Duration, dials *atomic.Int64) ([]user, error) {
	var all []user
	for range n {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10), // of thousands of connections
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, "tcp4", address)
			}))
		if err != nil {
			return nil, err
		}
		all = append(all, &rpcUser{conn, greeter.NewGreeterClient(conn), &greeter.HelloRequest{Name: "you", DelayMs: length.Milliseconds()}})
	}
	return all, nil
}

func (u *rpcUser) call(ctx context.Context) error {
	_, err := u.client.Hello(ctx, u.request)
	return err
}

func (u *rpcUser) close() { u.conn.Close() } //nolint:errcheck // nothing is on it

// webUser asks one URL, over one connection that it keeps or a new one each time.
type webUser struct {
	caller
	method, url, body string
}

func (u *webUser) call(ctx context.Context) error { return u.ask(ctx, u.method, u.url, u.body) }
func (u *webUser) close()                         { u.caller.close() }

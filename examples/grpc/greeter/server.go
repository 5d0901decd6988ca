// Package greeter is the service of the gRPC examples.
package greeter

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

//go:generate protoc --go_out=. --go_opt=paths=source_relative greeter.proto
//go:generate protoc --go-grpc_out=. --go-grpc_opt=paths=source_relative greeter.proto

// Service implements Greeter.
type Service struct {
	UnimplementedGreeterServer
	Generation string
}

// Greet returns the answer of Hello and Chat, and of the JSON example.
func (s *Service) Greet(ctx context.Context, req *HelloRequest) (*HelloReply, error) {
	if err := pause(ctx, req.GetDelayMs()); err != nil {
		return nil, err
	}
	return &HelloReply{Text: "hello " + req.GetName(), Pid: int64(os.Getpid()), Generation: s.Generation}, nil
}

// Hello is the unary call.
func (s *Service) Hello(ctx context.Context, req *HelloRequest) (*HelloReply, error) {
	return s.Greet(ctx, req)
}

// Countdown is the server-streaming call.
func (s *Service) Countdown(req *CountdownRequest, out Greeter_CountdownServer) error {
	for n := req.GetFrom(); n > 0; n-- {
		if err := out.Send(&Number{Value: n}); err != nil {
			return err
		}
		if err := pause(out.Context(), req.GetStepMs()); err != nil {
			return err
		}
	}
	return nil
}

// Sum is the client-streaming call.
func (s *Service) Sum(in Greeter_SumServer) error {
	var sum int64
	for {
		n, err := in.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return in.SendAndClose(&Number{Value: sum})
		case err != nil:
			return err
		}
		sum += n.GetValue()
	}
}

// Chat is the bidirectional call.
func (s *Service) Chat(both Greeter_ChatServer) error {
	for {
		req, err := both.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		reply, err := s.Greet(both.Context(), req)
		if err != nil {
			return err
		}
		if err := both.Send(reply); err != nil {
			return err
		}
	}
}

// pause waits, or returns an error if the client no longer waits.
func pause(ctx context.Context, ms int64) error {
	if ms <= 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

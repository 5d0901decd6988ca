package graceful_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.org/supervisord/examples/grpc/greeter"
)

// The load of the gRPC test; larger figures are measured with the flags.
var (
	grpcUsers = flag.Int("grpc.users", 60, "users of each kind of call")
	grpcCall  = flag.Duration("grpc.call", 200*time.Millisecond, "how long a call takes")
	grpcSwap  = flag.Duration("grpc.swap", 300*time.Millisecond, "time between two swaps")
	grpcSwaps = flag.Int("grpc.swaps", 5, "number of swaps")
	grpcKinds = flag.String("grpc.kinds", "", "only this kind of call")
)

// calls are the four kinds of call, each made to take d.
var calls = map[string]func(ctx context.Context, c greeter.GreeterClient, d time.Duration) error{
	"unary": func(ctx context.Context, c greeter.GreeterClient, d time.Duration) error {
		_, err := c.Hello(ctx, &greeter.HelloRequest{DelayMs: d.Milliseconds()})
		return err
	},
	"server stream": func(ctx context.Context, c greeter.GreeterClient, d time.Duration) error {
		stream, err := c.Countdown(ctx, &greeter.CountdownRequest{From: 5, StepMs: d.Milliseconds() / 5})
		for n := 0; err == nil; n++ {
			if _, err = stream.Recv(); errors.Is(err, io.EOF) && n == 5 {
				return nil
			}
		}
		return err
	},
	"client stream": func(ctx context.Context, c greeter.GreeterClient, d time.Duration) error {
		stream, err := c.Sum(ctx)
		for n := 0; err == nil && n < 5; n++ {
			time.Sleep(d / 5)
			err = stream.Send(&greeter.Number{Value: 2})
		}
		if err != nil {
			return err
		}
		if sum, err := stream.CloseAndRecv(); err != nil || sum.GetValue() != 10 {
			return fmt.Errorf("sum %d: %w", sum.GetValue(), err)
		}
		return nil
	},
	"both stream": func(ctx context.Context, c greeter.GreeterClient, d time.Duration) error {
		stream, err := c.Chat(ctx)
		for n := 0; err == nil && n < 5; n++ {
			time.Sleep(d / 5)
			if err = stream.Send(&greeter.HelloRequest{}); err == nil {
				_, err = stream.Recv()
			}
		}
		if err != nil {
			return err
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("no end: %w", err)
		}
		return nil
	},
}

func TestGRPCLosesNoCall(t *testing.T) {
	m := newMaster(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	u := &users{addr: m.addr, failed: make(map[string]int), stop: make(chan struct{})}
	old := m.serving("grpc")
	for kind, call := range calls {
		if *grpcKinds == "" || *grpcKinds == kind {
			u.start(ctx, kind, call)
		}
	}
	for range *grpcSwaps {
		time.Sleep(*grpcSwap)
		next := m.serving("grpc")
		old.signal(15)
		defer old.wait(10*time.Second, 0)
		old = next
	}
	close(u.stop)
	u.all.Wait()
	old.signal(15)
	old.wait(10*time.Second, 0)
	t.Logf("%d calls, %d users of each kind, %d swaps: failed %v", u.done, *grpcUsers, *grpcSwaps, u.failed)
	if len(u.failed) > 0 || u.done == 0 {
		t.Errorf("%d done, failed: %v", u.done, u.failed)
	}
}

// users make calls, each over a connection of its own, without retries.
type users struct {
	addr   string
	all    sync.WaitGroup
	stop   chan struct{}
	mu     sync.Mutex
	done   int
	failed map[string]int
}

func (u *users) start(ctx context.Context, kind string, call func(context.Context, greeter.GreeterClient, time.Duration) error) {
	for range *grpcUsers {
		u.all.Go(func() {
			c, err := grpc.NewClient("passthrough:///"+u.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
			if err != nil {
				u.count(kind, err)
				return
			}
			defer c.Close()
			for u.goesOn() {
				u.count(kind, call(ctx, greeter.NewGreeterClient(c), *grpcCall))
			}
		})
	}
}

func (u *users) goesOn() bool {
	select {
	case <-u.stop:
		return false
	default:
		return true
	}
}

func (u *users) count(kind string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done++
	if err != nil {
		u.failed[kind+": "+err.Error()]++
	}
}

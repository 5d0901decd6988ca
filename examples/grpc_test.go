package examples

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.org/supervisord/examples/grpc/greeter"
	"example.org/supervisord/internal/lab"
)

// The load of the gRPC tests; use the flags to measure larger figures.
var (
	grpcUsers = flag.Int("grpc.users", 60, "users of each kind of call")
	grpcCall  = flag.Duration("grpc.call", 200*time.Millisecond, "how long a call takes")
	grpcKinds = flag.String("grpc.kinds", "", "only this kind of call")
)

// kinds returns the four kinds of call, each of which takes d.
var kinds = map[string]func(ctx context.Context, c greeter.GreeterClient, d time.Duration) error{
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
		sum, err := stream.CloseAndRecv()
		if err == nil && sum.GetValue() != 10 {
			err = fmt.Errorf("the sum is %d", sum.GetValue())
		}
		return err
	},
	"both stream": func(ctx context.Context, c greeter.GreeterClient, d time.Duration) error {
		stream, err := c.Chat(ctx)
		for n := 0; err == nil && n < 5; n++ {
			time.Sleep(d / 5)
			if err = stream.Send(&greeter.HelloRequest{}); err == nil {
				_, err = stream.Recv()
			}
		}
		if err == nil {
			err = stream.CloseSend()
		}
		if err != nil {
			return err
		}
		if _, err = stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("no end: %w", err)
	},
}

// Each user makes one kind of call over its own connection, without retries.
func TestGRPCExamplesLoseNoCallOfAnyKind(t *testing.T) {
	each := slices.Sorted(maps.Keys(kinds))
	if *grpcKinds != "" {
		each = []string{*grpcKinds}
	}
	for _, name := range []string{"grpc", "json-vs-grpc"} {
		t.Run(name, func(t *testing.T) {
			m, at := example(t, name)
			clients := make([]greeter.GreeterClient, len(each)**grpcUsers)
			for i := range clients {
				conn, err := grpc.NewClient("passthrough:///"+at[len(at)-1],
					grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
				lab.Must(t, err)
				t.Cleanup(func() { conn.Close() })
				clients[i] = greeter.NewGreeterClient(conn)
			}
			redeployBelow(m, len(clients), 10**grpcUsers, func(i int) error {
				ctx, cancel := context.WithTimeout(context.Background(), lab.Patience+*grpcCall)
				defer cancel()
				kind := each[i%len(each)]
				if err := kinds[kind](ctx, clients[i], *grpcCall); err != nil {
					return fmt.Errorf("%s: %w", kind, err)
				}
				return nil
			})
			m.Never(lab.Says(lab.WorkerKilled))
			m.Never(lab.Says(lab.WorkerDied))
		})
	}
}

// Grpc is a gRPC worker: all four kinds of call, the health service, reflection.
package main

import (
	"context"
	"flag"
	"log"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"example.org/supervisord/examples/grpc/greeter"
	"example.org/supervisord/worker/graceful"
)

func main() {
	address := flag.String("address", "127.0.0.1:8082", "where to listen when no socket is inherited")
	flag.Parse()
	log.SetFlags(0)
	if err := run(*address); err != nil {
		log.Fatal("grpc: ", err)
	}
}

func run(address string) error {
	ln, err := graceful.Listener("grpc", address)
	if err != nil {
		return err
	}
	srv, alive := grpc.NewServer(), health.NewServer()
	greeter.RegisterGreeterServer(srv, &greeter.Service{Generation: os.Getenv("SUPERVISORD_GENERATION")})
	grpc_health_v1.RegisterHealthServer(srv, alive)
	reflection.Register(srv)
	// Ends the calls of clients that watch the health service, which would otherwise hold up the stop until the deadline.
	options := graceful.Options{OnStop: func(context.Context) { alive.Shutdown() }}
	return options.Serve(context.Background(), graceful.GRPC(ln, srv))
}

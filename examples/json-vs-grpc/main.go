// Json-vs-grpc serves one service as JSON over HTTP/1.1 and as gRPC, for comparison.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"os"

	"google.golang.org/grpc"

	"example.org/supervisord/examples/grpc/greeter"
	"example.org/supervisord/worker/graceful"
)

func main() {
	jsonAddress := flag.String("json", "127.0.0.1:8083", "where to speak JSON when no socket is inherited")
	grpcAddress := flag.String("grpc", "127.0.0.1:8084", "where to speak gRPC when no socket is inherited")
	flag.Parse()
	log.SetFlags(0)
	if err := run(*jsonAddress, *grpcAddress); err != nil {
		log.Fatal("json-vs-grpc: ", err)
	}
}

func run(jsonAddress, grpcAddress string) error {
	jsonLn, err := graceful.Listener("json", jsonAddress)
	if err != nil {
		return err
	}
	grpcLn, err := graceful.Listener("grpc", grpcAddress)
	if err != nil {
		return err
	}
	service := &greeter.Service{Generation: os.Getenv("SUPERVISORD_GENERATION")}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hello", hello(service))
	srv := grpc.NewServer()
	greeter.RegisterGreeterServer(srv, service)
	return graceful.Serve(context.Background(), graceful.HTTP(jsonLn, &http.Server{Handler: mux}),
		graceful.GRPC(grpcLn, srv))
}

// hello is Greeter.Hello in JSON: {"name": "you", "delay_ms": 1000}.
func hello(service *greeter.Service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req greeter.HelloRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply, err := service.Greet(r.Context(), &req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(reply); err != nil {
			log.Print("json-vs-grpc: ", err)
		}
	}
}

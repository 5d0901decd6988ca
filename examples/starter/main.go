// Starter is a program written for github.com/lestrrat-go/server-starter/listener, as many are. It knows nothing of
// supervisord and runs under it unchanged.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lestrrat-go/server-starter/listener"
)

func main() {
	listeners, err := listener.ListenAll()
	if err != nil {
		log.Fatal("starter: ", err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "starter pid=%d generation=%s\n", os.Getpid(), os.Getenv("SERVER_STARTER_GENERATION"))
	})}
	for _, ln := range listeners {
		go func() {
			if err := srv.Serve(ln); err != http.ErrServerClosed {
				log.Fatal("starter: ", err)
			}
		}()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		log.Fatal("starter: ", err)
	}
}

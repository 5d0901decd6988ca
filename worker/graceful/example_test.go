package graceful_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"example.org/supervisord/worker/graceful"
)

// A web server: three lines replace http.ListenAndServe.
func Example() {
	ln, err := graceful.Listener("http", "127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	if err := graceful.Serve(context.Background(), graceful.HTTP(ln, &http.Server{})); err != nil {
		log.Fatal(err)
	}
}

// A server of event streams closes its streams when the stop begins.
func ExampleOptions() {
	leaving := make(chan struct{})
	events := func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case <-time.After(time.Second):
				fmt.Fprint(w, "data: tick\n\n")
			case <-leaving:
				fmt.Fprint(w, "event: goodbye\ndata:\n\n")
				return
			case <-r.Context().Done():
				return
			}
		}
	}
	ln, err := graceful.Listener("http", "127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	options := graceful.Options{
		Deadline: time.Minute,
		OnStop:   func(context.Context) { close(leaving) },
	}
	if err := options.Serve(context.Background(),
		graceful.HTTP(ln, &http.Server{Handler: http.HandlerFunc(events)})); err != nil {
		log.Fatal(err)
	}
}

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"example.org/supervisord/worker/graceful"
)

// Roles that this binary plays, by its first argument.
const (
	namesRole  = "role:names"
	sealedRole = "role:sealed"
)

func roleOf(args []string) func() error {
	if len(args) < 2 {
		return nil
	}
	return map[string]func() error{namesRole: serveWithNames, sealedRole: runSealed}[args[1]]
}

// padded is an answer whose length does not depend on the worker: ab takes another length than the first for a failure.
func padded(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "%-64s\n", fmt.Sprintf("hello pid=%d", os.Getpid()))
}

// serveWithNames is a worker that looks a name up before it serves and again for every request.
func serveWithNames() error {
	lookUp := func(ctx context.Context) error {
		_, err := net.DefaultResolver.LookupHost(ctx, slowName)
		return err
	}
	if err := lookUp(context.Background()); err != nil {
		return err
	}
	ln, err := graceful.Listener("http", "127.0.0.1:0")
	if err != nil {
		return err
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := lookUp(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		padded(w, r)
	})
	return graceful.Serve(context.Background(),
		graceful.HTTP(ln, &http.Server{Handler: answer, ReadHeaderTimeout: 10 * time.Second}))
}

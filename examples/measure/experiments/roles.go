package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/worker/graceful"
)

// Roles that this binary plays, by its first argument.
const (
	shutdownRole = "role:shutdown"
	namesRole    = "role:names"
	sealedRole   = "role:sealed"
)

func roleOf(args []string) func() error {
	if len(args) < 2 {
		return nil
	}
	return map[string]func() error{shutdownRole: serveWithShutdown, namesRole: serveWithNames, sealedRole: runSealed}[args[1]]
}

// padded is an answer whose length does not depend on the worker: ab takes another length than the first for a failure.
func padded(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "%-64s\n", fmt.Sprintf("hello pid=%d", os.Getpid()))
}

// serveWithShutdown is the worker that most Go programs are: on TERM it calls http.Server.Shutdown, and nothing else. It gets its
// socket as examples/hello does, so that the two differ only in how they stop.
func serveWithShutdown() error {
	flags := flag.NewFlagSet(shutdownRole, flag.ContinueOnError)
	boot := flags.Duration("boot-delay", 0, "as examples/hello has it")
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	if err := kit.Pause(context.Background(), *boot); err != nil {
		return err
	}
	ln, err := graceful.Listener("http", "127.0.0.1:0")
	if err != nil {
		return err
	}
	term, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	srv := &http.Server{Handler: http.HandlerFunc(padded), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	if err := graceful.Ready(); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-term.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err = srv.Shutdown(ctx)
	<-ended
	return err
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
	return graceful.Serve(context.Background(), graceful.HTTP(ln, &http.Server{Handler: answer, ReadHeaderTimeout: 10 * time.Second}))
}

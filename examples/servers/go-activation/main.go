// go-activation serves HTTP on the socket that it gets by LISTEN_FDS, through go-systemd's package activation, with nothing else but
// the standard library.
//
// What is special is the stop. http.Server.Shutdown closes idle connections at once and drops requests that it has read but not begun
// to handle (golang/go#75591), so a client that is just sending one loses it. Here the listener is closed first, each answer then says
// "Connection: close", and Shutdown comes when the clients have gone. -shutdown does without, to see the difference.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// limit is how long the last clients may stay.
const limit = 25 * time.Second

func main() {
	plain := flag.Bool("shutdown", false, "stop by http.Server.Shutdown alone")
	flag.Parse()
	listeners, err := activation.Listeners()
	if err != nil {
		log.Fatal(err)
	}
	if len(listeners) != 1 {
		log.Fatalf("%d sockets were passed, want 1: this program is started by supervisord or systemd", len(listeners))
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	if err := serve(ctx, listeners[0], *plain); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, listener net.Listener, plain bool) error {
	var stopping atomic.Bool
	var open conns
	server := &http.Server{ConnState: open.count, Handler: handler(&stopping)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	deadline, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if !plain {
		stopping.Store(true)
		listener.Close() // Serve returns; what is open continues
		<-ended
		open.wait(deadline)
	}
	return server.Shutdown(deadline)
}

func handler(stopping *atomic.Bool) http.Handler {
	body := fmt.Sprintf("generation=%s pid=%d\n", os.Getenv("SUPERVISORD_GENERATION"), os.Getpid())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(300 * time.Millisecond)
		}
		if stopping.Load() {
			w.Header().Set("Connection", "close")
		}
		fmt.Fprint(w, body)
	})
}

// conns counts the open connections.
type conns struct{ atomic.Int64 }

func (o *conns) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		o.Add(1)
	case http.StateClosed, http.StateHijacked:
		o.Add(-1)
	}
}

// wait returns when all have gone, or with ctx.
func (o *conns) wait(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for o.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Hello is the example worker: net/http on the listener called "http", and nothing else. Its flags make it misbehave,
// to show what a supervisor does then.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"example.org/supervisord/worker/graceful"
)

type greeter struct {
	address, version         string
	bootDelay, requestDelay  time.Duration
	linger, deadline, exitIn time.Duration
	fail                     bool
	leaving                  chan struct{} // closed as the stop begins
}

func main() {
	var w greeter
	flag.StringVar(&w.address, "address", "127.0.0.1:8080", "where to listen when no socket is inherited")
	flag.StringVar(&w.version, "version", "1", "what / says")
	flag.DurationVar(&w.bootDelay, "boot-delay", 0, "how long to take before serving")
	flag.DurationVar(&w.requestDelay, "request-delay", 0, "how long each answer takes")
	flag.DurationVar(&w.linger, "linger", 0, "how long idle connections are kept after TERM (0: the default)")
	flag.DurationVar(&w.deadline, "deadline", 0, "how long a stop may take (0: the default)")
	flag.DurationVar(&w.exitIn, "exit-in", 0, "crash after this time (0: never)")
	flag.BoolVar(&w.fail, "fail", false, "exit 1 instead of getting ready")
	check := flag.Bool("check", false, "exit 0 if this program could run: for reload.preflight")
	flag.Parse()
	log.SetFlags(0)
	if *check {
		return
	}
	if err := w.run(); err != nil {
		log.Fatal("hello: ", err)
	}
}

func (w *greeter) run() error {
	if w.exitIn > 0 {
		time.AfterFunc(w.exitIn, func() { os.Exit(3) })
	}
	pause(context.Background(), w.bootDelay)
	if w.fail {
		return errors.New("told to fail")
	}
	ln, err := graceful.Listener("http", w.address)
	if err != nil {
		return err
	}
	w.leaving = make(chan struct{})
	options := graceful.Options{Linger: w.linger, Deadline: w.deadline, OnStop: func(context.Context) { close(w.leaving) }}
	return options.Serve(context.Background(),
		graceful.HTTP(ln, &http.Server{Handler: w.routes(), ReadHeaderTimeout: 10 * time.Second}))
}

func (w *greeter) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", w.hello)
	mux.HandleFunc("/slow", w.slow)
	mux.HandleFunc("/events", w.events)
	mux.HandleFunc("/healthz", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprintln(rw, "ok") })
	return mux
}

func (w *greeter) hello(rw http.ResponseWriter, r *http.Request) {
	if w.requestDelay > 0 {
		pause(r.Context(), w.requestDelay)
	}
	w.answer(rw)
}

// slow answers after ?d=, a duration.
func (w *greeter) slow(rw http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.FormValue("d"))
	if err != nil {
		http.Error(rw, "d must be a duration, such as /slow?d=2s", http.StatusBadRequest)
		return
	}
	pause(r.Context(), d)
	w.answer(rw)
}

// events is a stream of server-sent events, one each second. It ends with a goodbye as the stop begins, so that its
// clients return at once, to the next generation, and are not cut off at the deadline.
func (w *greeter) events(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/event-stream")
	stream := http.NewResponseController(rw)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		fmt.Fprintf(rw, "data: %s\n\n", w.who())
		if err := stream.Flush(); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-w.leaving:
			fmt.Fprint(rw, "event: goodbye\nretry: 0\ndata:\n\n")
			return
		case <-r.Context().Done():
			return
		}
	}
}

// answer is padded, because ab counts an answer whose length differs from the first as a failure.
func (w *greeter) answer(rw http.ResponseWriter) { fmt.Fprintf(rw, "%-64s\n", "hello "+w.who()) }

func (w *greeter) who() string {
	return fmt.Sprintf("version=%s pid=%d generation=%s", w.version, os.Getpid(), generation())
}

// generation returns the number that supervisord or start_server gave; "-" if neither did.
func generation() string {
	for _, v := range []string{"SUPERVISORD_GENERATION", "SERVER_STARTER_GENERATION"} {
		if g := os.Getenv(v); g != "" {
			return g
		}
	}
	return "-"
}

// pause waits for d, or until the client has gone.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

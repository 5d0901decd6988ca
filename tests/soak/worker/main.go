// Worker is each of the programs of the soak. It keeps an account of what it has in hand (package account), and its
// answers say which worker gives them.
//
//	worker naive     net/http and nothing else: TERM ends it at once
//	worker polite    with worker/graceful
//	worker udp       answers datagrams
//
// Versions that fail, with -fail:
//
//	exit      ends at once
//	mute      never says ready
//	die       says ready, and dies 50 ms later
//	poison    says ready, and should be taken back
//	late      is whole, but ready only after three seconds
//
// None but the last may ever answer a client: their answers are poison.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"example.org/supervisord/tests/soak/account"
	"example.org/supervisord/worker/graceful"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("soak worker: ")
	accounts := flag.String("accounts", "/run/soak/accounts", "the `directory` of the accounts")
	fail := flag.String("fail", "", "how this version fails: exit, mute, die, poison or late")
	flag.Parse()
	if err := run(flag.Arg(0), *fail, *accounts); err != nil {
		log.Fatal(err)
	}
}

func run(kind, fail, accounts string) error {
	if !slices.Contains([]string{"", "exit", "mute", "die", "poison", "late"}, fail) {
		return fmt.Errorf("-fail %s is unknown", fail)
	}
	if fail == "exit" {
		os.Exit(3)
	}
	if fail == "late" {
		time.Sleep(3 * time.Second)
		fail = ""
	}
	generation, err := strconv.ParseUint(os.Getenv("SUPERVISORD_GENERATION"), 10, 64)
	if err != nil {
		return fmt.Errorf("SUPERVISORD_GENERATION: %w", err)
	}
	book, err := account.Create(accounts, kind, generation, fail == "die")
	if err != nil {
		return fmt.Errorf("cannot keep an account: %w", err)
	}
	log.Printf("%s, PID %d of generation %d", kind, os.Getpid(), generation)
	w := &worker{book: book, poison: fail != ""}
	switch {
	case fail != "":
		return w.fail(kind, fail)
	case kind == "naive":
		return w.naive(graceful.Ready)
	case kind == "polite":
		return w.polite()
	case kind == "udp":
		return w.datagrams()
	}
	return fmt.Errorf("%q is no program of the soak", kind)
}

// worker is this process.
type worker struct {
	book    *account.Book
	poison  bool
	sockets sockets
}

// fail is a version that must not serve.
func (w *worker) fail(kind, how string) error {
	ready := graceful.Ready
	if how == "mute" {
		ready = func() error { return nil }
	}
	if how == "die" {
		time.AfterFunc(50*time.Millisecond, func() { os.Exit(4) })
	}
	if kind != "udp" {
		return w.naive(ready)
	}
	c, err := graceful.PacketConn("dns", "127.0.0.1:0")
	if err == nil {
		err = ready()
	}
	for err == nil {
		err = w.datagram(c)
	}
	return err
}

// naive is a server that nobody has taught to stop.
func (w *worker) naive(ready func() error) error {
	all, err := listeners()
	if err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	ended := make(chan error, len(all))
	for _, ln := range all {
		go func() { ended <- w.server().Serve(ln) }()
	}
	return <-ended
}

// polite is the same server with worker/graceful.
func (w *worker) polite() error {
	all, err := listeners()
	if err != nil {
		return err
	}
	var servers []graceful.Server
	for _, ln := range all {
		servers = append(servers, graceful.HTTP(ln, w.server()))
	}
	err = graceful.Options{OnStop: w.sockets.goodbye}.Serve(context.Background(), servers...)
	log.Print("stopped")
	return err
}

// listeners are all that this process was given.
func listeners() ([]net.Listener, error) {
	all, err := graceful.Listeners()
	if err == nil && len(all) == 0 {
		err = errors.New("no listener was passed")
	}
	return all, err
}

func (w *worker) server() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(to http.ResponseWriter, _ *http.Request) {
		to.Write(w.text(0)) //nolint:errcheck // nobody counts these
	})
	mux.HandleFunc("GET /{id}", w.answer)
	mux.HandleFunc("GET /download/{id}", w.download)
	mux.HandleFunc("GET /socket", w.socket)
	srv := &http.Server{Handler: mux}
	w.keep(srv)
	return srv
}

// Probe is the service that the tests start under a real systemd to try internal/systemd and the lab itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/systemd"
)

func main() {
	if len(os.Args) < 2 {
		exit(fmt.Errorf("usage: probe serve ADDRESS | store COUNT LENGTH | log COUNT"))
	}
	notify, err := systemd.Open(os.Getenv, nil, func(err error) { exit(err) })
	if err != nil {
		exit(err)
	}
	switch os.Args[1] {
	case "serve":
		exit(serve(notify, os.Args[2]))
	case "store":
		exit(store(notify, number(os.Args[2]), number(os.Args[3])))
	case "log":
		exit(log(number(os.Args[2])))
	}
}

// serve answers every request with "hello".
func serve(notify *systemd.Notify, address string) error {
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	if err := notify.Ready(); err != nil {
		return err
	}
	return http.ListenAndServe(address, nil)
}

// store puts so many descriptors, with names of such a length, into the store, or as many as it may. It says in its status
// how many it got back, and after how long systemd has taken them.
func store(notify *systemd.Notify, count, length int) error {
	begin := time.Now()
	got := 0
	if names := os.Getenv("LISTEN_FDNAMES"); names != "" {
		got = len(strings.Split(names, ":"))
	}
	for i := got; i < count; i++ {
		fd, err := unix.MemfdCreate("stored", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		err = notify.StoreFD(fmt.Sprintf("%0*d", length, i), fd)
		unix.Close(fd)
		if errors.Is(err, systemd.ErrNamesFull) {
			break
		}
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := notify.Barrier(ctx); err != nil {
		return err
	}
	if err := notify.Send("READY=1", fmt.Sprintf("STATUS=got %d in %v", got, time.Since(begin))); err != nil {
		return err
	}
	select {}
}

// log writes so many entries to the journal and ends at once.
func log(count int) error {
	core, err := systemd.NewJournal(systemd.JournalSocket, zap.InfoLevel, zap.NewNop().Core())
	if err != nil {
		return err
	}
	for i := range count {
		zap.New(core).Warn("probed", zap.Int("number", i), zap.String("program", "web"))
	}
	return nil
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		exit(err)
	}
	return n
}

// exit ends the probe, with a line that says why if it is an error.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

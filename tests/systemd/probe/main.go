// Probe is the service that the tests run under a real systemd to test internal/systemd and the lab itself.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/supervisor/record"
)

func main() {
	if len(os.Args) < 2 {
		exit(fmt.Errorf("usage: probe serve ADDRESS | prefork ADDRESS CHILDREN | store COUNT LENGTH | log COUNT"))
	}
	switch os.Args[1] { // what does without systemd
	case "prefork":
		prefork(os.Args[2], number(os.Args[3]))
	case "child":
		exit(child(os.Args[2]))
	}
	notify, err := systemd.Open(os.Getenv, func(err error) { exit(err) })
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
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if err := notify.Ready(); err != nil {
		return err
	}
	return http.Serve(ln, nil)
}

// prefork keeps so many children running, each of which opens the address itself.
func prefork(address string, children int) {
	for range children {
		go func() {
			for {
				cmd := exec.Command("/proc/self/exe", "child", address)
				cmd.Stderr = os.Stderr
				if err := cmd.Run(); err != nil {
					fmt.Fprintln(os.Stderr, "a child:", err)
				}
			}
		}()
	}
	select {}
}

// child answers twenty requests.
func child(address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot bind: %w", err)
	}
	for range 20 {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
		}
		conn.Close()
	}
	return nil
}

// store puts count descriptors with names of this length into the store, or as many as allowed, besides the two of the
// record. Its status says how many it got back.
func store(notify *systemd.Notify, count, length int) error {
	inherited, err := inherit.FromEnvironment(os.Environ(), os.Getpid())
	if err != nil {
		return err
	}
	h, err := record.Read(os.Environ(), func() ([]inherit.Socket, error) { return inherited, nil })
	if err != nil {
		return err
	}
	var all stored
	for i := range count {
		fd, err := unix.MemfdCreate("stored", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		all = append(all, socket.Named{Name: fmt.Sprintf("%0*d", length, i), FD: fd})
	}
	s := record.NewStore(notify, zap.NewNop())
	s.Inherit(h)
	s.Keep(all, nil)
	if err := s.Settle(time.Minute); err != nil {
		return err
	}
	if err := errors.Join(notify.Status(fmt.Sprintf("got %d", len(inherited))), notify.Ready()); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	return nil
}

// stored is a supervisor that only has descriptors.
type stored []socket.Named

func (s stored) Head() *record.Record                 { return new(record.Record) }
func (s stored) Sockets() []socket.Named              { return s }
func (s stored) Programs() []string                   { return nil }
func (s stored) Program(string) *record.ProgramRecord { return nil }
func (s stored) Filters() map[string]record.Adoptable { return nil }

// log writes count entries to the journal and exits at once.
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

// exit exits; for an error it prints a line and exits with 1.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

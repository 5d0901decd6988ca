// Naive is the worker that most Go programs are: net/http and nothing else. Tests and measurements use it to see what
// becomes of requests whatever the worker does when it is told to stop.
//
//	naive           on TERM: http.Server.Shutdown
//	naive -die      on TERM: nothing, so that the kernel ends the process
//	naive -tls      HTTPS with a certificate of its own
//	naive -udp      sends each datagram back; on TERM: nothing
//
// It serves the socket at fd 3, the one that SERVER_STARTER_PORT names, or an -address of its own.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/certificate"
)

func main() {
	log.SetFlags(0)
	die := flag.Bool("die", false, "do not handle TERM")
	secure := flag.Bool("tls", false, "serve HTTPS with a certificate of its own")
	udp := flag.Bool("udp", false, "send datagrams back")
	address := flag.String("address", "", "listen here, without a supervisor")
	boot := flag.Duration("boot-delay", 0, "wait before serving, like a program that has much to load")
	flag.Parse()
	time.Sleep(*boot)
	if *udp {
		log.Fatal("naive: ", echo(*address))
	}
	ln, err := listener(*address)
	if err == nil && *secure {
		ln, err = encrypted(ln)
	}
	if err == nil {
		err = serve(ln, *die)
	}
	if err != nil {
		log.Fatal("naive: ", err)
	}
}

func serve(ln net.Listener, die bool) error {
	term := make(chan os.Signal, 1)
	if !die {
		signal.Notify(term, syscall.SIGTERM)
	}
	srv := &http.Server{Handler: http.HandlerFunc(answer), ErrorLog: log.New(log.Writer(), "", 0)}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	if err := sayReady(); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-term:
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return srv.Shutdown(ctx)
}

// echo sends each datagram back that comes to an address, or to the socket at fd 3.
func echo(address string) error {
	open := func() (net.PacketConn, error) { return net.FilePacketConn(os.NewFile(3, "socket")) }
	if address != "" {
		open = func() (net.PacketConn, error) { return net.ListenPacket("udp", address) }
	}
	conn, err := open()
	if err != nil {
		return err
	}
	for buffer := make([]byte, 1<<16); ; {
		n, who, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		if _, err := conn.WriteTo(buffer[:n], who); err != nil {
			return err
		}
	}
}

// answer has a length that does not depend on the worker: ab takes another length than the first for a failure. "/slow"
// answers after 300 ms or ?d=DURATION, and "/parts?n=4&pause=300ms" sends so many lines with a pause between two of
// them.
func answer(w http.ResponseWriter, r *http.Request) {
	line := fmt.Sprintf("%-63s\n", fmt.Sprintf("generation=%s pid=%d", generation(), os.Getpid()))
	switch r.URL.Path {
	case "/slow":
		time.Sleep(duration(r, "d"))
	case "/parts":
		n, err := strconv.Atoi(r.FormValue("n"))
		if err != nil {
			http.Error(w, "n: "+err.Error(), http.StatusBadRequest)
			return
		}
		for range n - 1 {
			io.WriteString(w, line)               //nolint:errcheck // then the client has gone
			http.NewResponseController(w).Flush() //nolint:errcheck // as above
			time.Sleep(duration(r, "pause"))
		}
	}
	io.WriteString(w, line) //nolint:errcheck // as above
}

// duration is that of a form's key; without it, 300 ms.
func duration(r *http.Request, key string) time.Duration {
	if d, err := time.ParseDuration(r.FormValue(key)); err == nil {
		return d
	}
	return 300 * time.Millisecond
}

func generation() string {
	if g := os.Getenv("SUPERVISORD_GENERATION"); g != "" {
		return g
	}
	return os.Getenv("SERVER_STARTER_GENERATION")
}

func listener(address string) (net.Listener, error) {
	if address != "" {
		return net.Listen("tcp", address)
	}
	fd := 3
	if _, text, ok := strings.Cut(os.Getenv("SERVER_STARTER_PORT"), "="); ok {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("SERVER_STARTER_PORT: %w", err)
		}
		fd = n
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	return net.FileListener(f)
}

func encrypted(ln net.Listener) (net.Listener, error) {
	config, err := certificate.SelfSigned()
	if err != nil {
		return nil, err
	}
	return tls.NewListener(ln, config), nil
}

// sayReady sends READY=1 to NOTIFY_SOCKET, if there is one.
func sayReady() error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Sendto(fd, []byte("READY=1"), 0, &unix.SockaddrUnix{Name: path}), unix.Close(fd))
}

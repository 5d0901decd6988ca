// Light is the worker of the benchmark: a listener, readiness, TERM, and next to nothing else, so that the supervisor
// is what is measured. It records what happens to it by the monotonic clock, which all processes share.
//
//	light           serve the socket at fd 3, or the one that SERVER_STARTER_PORT names
//	light block     say ready, and wait for TERM: what Go itself costs
//	light churn N   fork and exec N processes that wait, print the CPU time that took, end them, print that
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/clock"
)

func main() {
	began := clock.Monotonic()
	log.SetFlags(0)
	term := make(chan os.Signal, 1)
	signal.Notify(term, unix.SIGTERM)
	var err error
	switch {
	case len(os.Args) == 1:
		err = serve(began, term)
	case os.Args[1] == "block":
		if err = sayReady(); err == nil {
			<-term
		}
	case os.Args[1] == "churn" && len(os.Args) == 3:
		err = churn(os.Args[2])
	default:
		err = fmt.Errorf("unknown arguments %q", os.Args[1:])
	}
	if err != nil {
		log.Fatal("light: ", err)
	}
}

func serve(began time.Duration, term <-chan os.Signal) error {
	ln, err := listener()
	if err != nil {
		return err
	}
	var answering sync.WaitGroup
	accepting := make(chan struct{})
	answer := []byte("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\n" +
		fmt.Sprintf("%08d\n", generation()))
	go func() {
		defer close(accepting)
		acceptAll(ln, answer, &answering)
	}()
	ready := clock.Monotonic()
	if err := sayReady(); err != nil {
		return err
	}
	stamp("main", began)
	stamp("ready", ready)
	<-term
	stamp("term", clock.Monotonic())
	ln.Close() //nolint:errcheck // the socket itself stays open in the supervisor
	<-accepting
	answering.Wait()
	return nil
}

func listener() (net.Listener, error) {
	fd := 3
	if _, text, ok := strings.Cut(os.Getenv("SERVER_STARTER_PORT"), "="); ok {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		fd = n
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	return net.FileListener(f)
}

func acceptAll(ln net.Listener, answer []byte, answering *sync.WaitGroup) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		answering.Go(func() {
			defer c.Close()
			var request [1024]byte
			if _, err := c.Read(request[:]); err == nil { // one request of the benchmark fits into one packet
				c.Write(answer) //nolint:errcheck // a client that has gone
			}
		})
	}
}

func generation() int {
	for _, name := range []string{"SUPERVISORD_GENERATION", "SERVER_STARTER_GENERATION"} {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
	}
	return 0
}

func sayReady() error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("READY=1"), 0, &unix.SockaddrUnix{Name: path})
}

// stamp adds a line to the file that BENCH_STAMPS names: an append of one short line is never torn.
func stamp(what string, at time.Duration) {
	path := os.Getenv("BENCH_STAMPS")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		log.Fatal("light: ", err)
	}
	defer f.Close()
	fmt.Fprintf(f, "%s %d %d %d\n", what, generation(), os.Getpid(), int64(at))
}

// churn is the least that starting and stopping so many processes costs a Go program.
func churn(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	pids := make([]int, 0, n)
	for range n {
		pid, err := syscall.ForkExec("/proc/self/exe", []string{"light", "block"}, &syscall.ProcAttr{
			Env: []string{"GOMAXPROCS=1"}, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}})
		if err != nil {
			return err
		}
		pids = append(pids, pid)
	}
	up, err := clock.CPU(os.Getpid())
	if err != nil {
		return err
	}
	for _, pid := range pids {
		unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // our own child
		unix.Wait4(pid, nil, 0, nil) //nolint:errcheck // likewise
	}
	down, err := clock.CPU(os.Getpid())
	fmt.Println(int64(up), int64(down))
	return err
}

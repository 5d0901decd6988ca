// Worker is the worker of the tests, which misbehaves on request. See behave for its arguments.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// behaviour is how a worker behaves, by arguments "key=value".
type behaviour map[string]string

func main() { behave(os.Args[1:]) }

// behave makes this process a worker. In this order, each only if its argument is there:
//
//	note=FILE        appends a line for each signal, "GENERATION SLOT TERM", and for the start, "GENERATION SLOT start"
//	say=TEXT         writes TEXT to stderr
//	fork             starts a "sleep 1000" in its process group
//	failif=FILE      exits with 3 if the file exists
//	exit=CODE        exits
//	accept=FIFO      waits until a test opens the FIFO for writing, before it accepts connections; not together with gate
//	extend=DURATION  asks for more time to get ready
//	boot=DURATION    waits
//	gate=FIFO        waits until a test opens the FIFO for writing
//	hangif=FILE      never gets ready if the file exists
//	ready=never      does not say that it is ready; ready=newline: on NOTIFY_FD; otherwise READY=1 to NOTIFY_SOCKET
//	die=DURATION     exits with 4 that long after ready
//	term=ignore      ignores TERM; term=DURATION: takes that long to end; otherwise it ends when it has answered
//
//	ill=FILE         answers "/healthz" with 500 while the file exists, or FILE.SLOT
//	opens=ADDRESS    does not take its sockets, but opens this TCP address itself; behind a comma, more of them
//	unlink           removes the paths of its unix sockets when it closes them
//	tls              speaks HTTPS, with a certificate of its own
//	counts           answers each datagram with the generation, and how many this client has sent to it
//
// It answers HTTP on its sockets: "/" with its name, "/slow?d=DURATION", "/slow?gate=FIFO" and "/healthz" also with a
// line in the note, "/die" by exiting.
func behave(args []string) {
	b := behaviour{}
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		b[k] = v
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR2)
	b.note("start")
	b.start()
	b.wait("accept")
	if _, counts := b["counts"]; counts {
		go count()
	}
	servers := b.serve()
	go b.boot()
	for sig := range signals {
		b.note(strings.TrimPrefix(unix.SignalName(sig.(syscall.Signal)), "SIG"))
		b.leave(servers)
	}
}

func (b behaviour) note(what string) {
	if b["note"] == "" {
		return
	}
	f, err := os.OpenFile(b["note"], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	check(err)
	defer f.Close()
	fmt.Fprintln(f, os.Getenv("SUPERVISORD_GENERATION"), os.Getenv("SUPERVISORD_SLOT"), what)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(9)
	}
}

func (b behaviour) duration(key string) time.Duration {
	d, err := time.ParseDuration(b[key])
	if b[key] != "" {
		check(err)
	}
	return d
}

func (b behaviour) there(key string) bool {
	_, err := os.Stat(b[key])
	return b[key] != "" && err == nil
}

// start comes before the worker accepts: a worker that fails here loses no connection.
func (b behaviour) start() {
	if b["say"] != "" {
		fmt.Fprintln(os.Stderr, b["say"])
	}
	if _, ok := b["fork"]; ok {
		check(exec.Command("sleep", "1000").Start())
	}
	if b.there("failif") {
		os.Exit(3)
	}
	if b["exit"] != "" {
		code := 0
		fmt.Sscan(b["exit"], &code)
		os.Exit(code)
	}
}

// wait waits until a test opens a FIFO for writing.
func (b behaviour) wait(key string) {
	if b[key] != "" {
		f, err := os.Open(b[key])
		check(err)
		f.Close()
	}
}

// boot is everything up to ready, and dying after it.
func (b behaviour) boot() {
	if b["extend"] != "" {
		notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", b.duration("extend").Microseconds()))
	}
	time.Sleep(b.duration("boot"))
	b.wait("gate")
	if b.there("hangif") {
		return
	}
	switch b["ready"] {
	case "never":
		return
	case "newline":
		n := 0
		fmt.Sscan(os.Getenv("NOTIFY_FD"), &n)
		_, err := os.NewFile(uintptr(n), "notify").WriteString("\n")
		check(err)
	default:
		notify("READY=1")
	}
	if b["die"] != "" {
		time.Sleep(b.duration("die"))
		os.Exit(4)
	}
}

// notify sends a message to the supervisor, sd_notify(3).
func notify(text string) {
	c, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	check(err)
	defer c.Close()
	_, err = c.Write([]byte(text))
	check(err)
}

// serve answers on every stream socket of the worker.
func (b behaviour) serve() []*http.Server {
	who := fmt.Sprintf("generation=%s slot=%s pid=%d word=%s", os.Getenv("SUPERVISORD_GENERATION"),
		os.Getenv("SUPERVISORD_SLOT"),
		os.Getpid(), os.Getenv("WORD"))
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, who) })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		b.note("asked")
		if b.there("ill") || (behaviour{"ill": b["ill"] + "." + os.Getenv("SUPERVISORD_SLOT")}).there("ill") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintln(w, who)
	})
	mux.HandleFunc("/die", func(http.ResponseWriter, *http.Request) { os.Exit(5) })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		b.note("slow")
		d, _ := time.ParseDuration(r.FormValue("d"))
		time.Sleep(d)
		behaviour{"gate": r.FormValue("gate")}.wait("gate")
		fmt.Fprintln(w, who)
	})
	var servers []*http.Server
	for _, ln := range b.listeners() {
		s := &http.Server{Handler: mux}
		servers = append(servers, s)
		if _, secure := b["tls"]; secure {
			ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{certificate()}})
		}
		go s.Serve(ln)
	}
	return servers
}

// count answers the datagrams at fd 3. It knows nothing of other generations.
func count() {
	conn, err := net.FilePacketConn(os.NewFile(3, "socket"))
	check(err)
	sent := map[string]int{}
	for buffer := make([]byte, 64); ; {
		_, client, err := conn.ReadFrom(buffer)
		check(err)
		sent[client.String()]++
		_, err = conn.WriteTo(fmt.Appendf(nil, "%s %d", os.Getenv("SUPERVISORD_GENERATION"), sent[client.String()]), client)
		check(err)
	}
}

// listeners are the stream sockets of the worker, or what it opens itself.
func (b behaviour) listeners() (all []net.Listener) {
	if b["opens"] != "" {
		for at := range strings.SplitSeq(b["opens"], ",") {
			ln, err := net.Listen("tcp", at)
			check(err)
			all = append(all, ln)
		}
		return all
	}
	n := 0
	fmt.Sscan(os.Getenv("LISTEN_FDS"), &n)
	for i := range n {
		ln, err := net.FileListener(os.NewFile(uintptr(3+i), "socket"))
		if err != nil {
			continue // udp
		}
		if u, ok := ln.(*net.UnixListener); ok {
			_, unlinks := b["unlink"]
			u.SetUnlinkOnClose(unlinks)
		}
		all = append(all, ln)
	}
	return all
}

func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"web.example"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// leave ends as the argument term says.
func (b behaviour) leave(servers []*http.Server) {
	switch b["term"] {
	case "ignore":
		return
	case "":
		for _, s := range servers {
			check(s.Shutdown(context.Background()))
		}
		os.Exit(0)
	}
	go func() {
		time.Sleep(b.duration("term"))
		os.Exit(0)
	}()
}

package graceful_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"example.org/supervisord/worker/graceful"
)

// workers lists the roles in which the test binary can be re-executed.
var workers = map[string]func() error{
	"http": func() error {
		d, _ := time.ParseDuration(os.Getenv("TEST_BOOT"))
		time.Sleep(d)
		ln, err := graceful.Listener("http", os.Getenv("TEST_ADDRESS"))
		if err != nil {
			return err
		}
		return options().Serve(context.Background(), graceful.HTTP(ln, &http.Server{Handler: routes()}))
	},
	"h2c":    func() error { return serveLike("h2c") },
	"https":  func() error { return serveLike("https") },
	"ask":    answer,
	"status": func() error { return graceful.Status("warm\nREADY=1") },
	"late": func() error {
		d, _ := time.ParseDuration(os.Getenv("TEST_BOOT"))
		all, err := graceful.Listeners()
		if err != nil || len(all) != 2 {
			return fmt.Errorf("%d listeners, %w", len(all), err)
		}
		return graceful.Serve(context.Background(), graceful.HTTP(all[0], &http.Server{}), graceful.GRPC(all[1], &late{d}))
	},
	"broken": func() error {
		ln, err := graceful.Listener("http", "")
		if err != nil {
			return err
		}
		srv := &http.Server{TLSConfig: &tls.Config{CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}}}
		return graceful.Serve(context.Background(), graceful.HTTP(ln, srv))
	},
	"watched": func() error {
		o := graceful.Options{Alive: func() error { _, err := os.Stat(os.Getenv("TEST_ALIVE")); return err }}
		return o.Serve(context.Background(), graceful.Work(func(ctx context.Context) error { <-ctx.Done(); return nil }))
	},
}

func serveLike(worker string) error {
	srv, err := server(worker)
	if err != nil {
		return err
	}
	ln, err := graceful.Listener("https", "")
	if err != nil {
		return err
	}
	return options().Serve(context.Background(), graceful.HTTP(ln, srv))
}

// options come from the environment, so that each test sets them.
func options() graceful.Options {
	var o graceful.Options
	o.Linger, _ = time.ParseDuration(os.Getenv("TEST_LINGER"))
	o.Deadline, _ = time.ParseDuration(os.Getenv("TEST_DEADLINE"))
	return o
}

func routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, os.Getpid()) })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		d, _ := time.ParseDuration(r.FormValue("d"))
		if at := r.FormValue("begun"); at != "" {
			if c, err := net.Dial("tcp", at); err == nil {
				c.Close()
			}
		}
		select {
		case <-time.After(d):
			fmt.Fprintln(w, os.Getpid())
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		_, _ = io.Copy(c, c)
	})
	return mux
}

// late accepts only after a delay.
type late struct{ after time.Duration }

func (l *late) Serve(ln net.Listener) error {
	time.Sleep(l.after)
	_, err := ln.Accept()
	return err
}
func (l *late) GracefulStop() {}
func (l *late) Stop()         {}

// answer answers the questions in TEST_ASK, one line each.
func answer() error {
	for _, q := range strings.Split(os.Getenv("TEST_ASK"), ",") {
		fmt.Println(answerTo(q))
	}
	return nil
}

func answerTo(question string) string {
	name, address, _ := strings.Cut(question, "|")
	switch {
	case question == "*":
		return all()
	case question == "child":
		out, err := exec.Command("sh", "-c",
			`echo sockets $(ls -l /proc/self/fd | grep -c socket:) variables $(env | grep -cE `+
				`'^(LISTEN_|SERVER_STARTER_PORT|NOTIFY_|WATCHDOG_)')`).Output()
		return fmt.Sprint(strings.TrimSpace(string(out)), err)
	case strings.HasPrefix(name, "udp "):
		c, err := graceful.PacketConn(name[4:], address)
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		return c.LocalAddr().String()
	}
	ln, err := graceful.Listener(name, address)
	if err != nil {
		return err.Error()
	}
	defer ln.Close()
	return ln.Addr().String()
}

func all() string {
	list, err := graceful.Listeners()
	if err != nil {
		return err.Error()
	}
	if len(list) == 0 {
		return "none"
	}
	var addresses []string
	for _, ln := range list {
		addresses = append(addresses, ln.Addr().String())
	}
	return strings.Join(addresses, " ")
}

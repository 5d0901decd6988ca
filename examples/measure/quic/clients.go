package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// tally is what became of the requests.
type tally struct {
	handshakes, requests, failed atomic.Int64
	refused                      atomic.Int64  // by a server that has no room: quic-go has it for 32 that shake hands
	pause                        time.Duration // between two requests of a client
}

// rate is how many requests a second all clients send: a busy machine answers so many.
const rate = 300

func (t *tally) String() string {
	return fmt.Sprintf("%d handshakes, %d requests, %d failed, %d refused", t.handshakes.Load(), t.requests.Load(),
		t.failed.Load(), t.refused.Load())
}

// failure counts what was lost, and says why of the first few.
func (t *tally) failure(what string, err error) {
	if e, is := errors.AsType[*quic.TransportError](err); is && e.ErrorCode == quic.ConnectionRefused {
		t.refused.Add(1)
		return
	}
	if t.failed.Add(1) <= 20 {
		log.Printf("%s %s: %v", time.Now().Format("15:04:05.000000"), what, err)
	}
}

// load is the load of so many clients until stdin ends.
func load(clients int, address string) *tally {
	t := &tally{}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // until its end
		cancel()
	}()
	t.pause = time.Second * time.Duration(clients) / rate
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			time.Sleep(t.pause * time.Duration(i) / time.Duration(clients)) // not all at once
			for ctx.Err() == nil {
				t.connection(ctx, address)
			}
		})
	}
	all.Wait()
	return t
}

// answerTimeout is how long an answer may take.
const answerTimeout = 30 * time.Second

// connection sends requests on one connection until the server wants it to be closed.
func (t *tally) connection(ctx context.Context, address string) {
	limited, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	secure := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}
	local, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.failure("socket", err)
		return
	}
	transport := &quic.Transport{Conn: local}
	defer local.Close()
	defer transport.Close()
	to, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		t.failure("address", err)
		return
	}
	conn, err := transport.Dial(limited, to, secure, &quic.Config{HandshakeIdleTimeout: answerTimeout})
	if err != nil {
		t.failure("handshake", err)
		return
	}
	t.handshakes.Add(1)
	defer conn.CloseWithError(0, "") //nolint:errcheck // the server learns of it
	client := (&http3.Transport{}).NewClientConn(conn)
	first := ""
	for ctx.Err() == nil {
		generation, last, err := t.ask(client)
		if err == nil && first != "" && generation != first {
			err = errors.New("generation " + generation + " answers on a connection of " + first)
		}
		if t.requests.Add(1); err != nil {
			t.failure("request", err)
			return
		}
		if last {
			return
		}
		first = generation
		select {
		case <-ctx.Done():
		case <-time.After(t.pause):
		}
	}
}

// ask sends a request, and says which generation has answered and whether it wants the connection to be closed.
func (t *tally) ask(client *http3.ClientConn) (generation string, last bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://test/", nil)
	if err != nil {
		return "", false, err
	}
	answer, err := client.RoundTrip(r)
	if err != nil {
		return "", false, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.Header.Get("Generation"), answer.Header.Get("Last") != "", errors.Join(err, answer.Body.Close())
}

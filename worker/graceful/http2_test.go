package graceful_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/graceful"
)

// certificate makes a throw-away certificate.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func protocols(set ...func(*http.Protocols, bool)) *http.Protocols {
	p := new(http.Protocols)
	for _, s := range set {
		s(p, true)
	}
	return p
}

// kinds lists the variants of HTTP/2, and HTTP/1 over TLS, with their workers and clients.
var kinds = []struct {
	name, worker, scheme string
	protocols            *http.Protocols
	major                int
}{
	{"h2c", "h2c", "http", protocols((*http.Protocols).SetUnencryptedHTTP2), 2},
	{"HTTP2 over TLS", "https", "https", protocols((*http.Protocols).SetHTTP2), 2},
	{"HTTP1 over TLS", "https", "https", protocols((*http.Protocols).SetHTTP1), 1},
}

func transport(p *http.Protocols) *http.Transport {
	return &http.Transport{Protocols: p, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
}

// server returns the server of the worker of this name, to serve it inside a test.
func server(worker string) (*http.Server, error) {
	srv := &http.Server{Handler: routes()}
	if worker == "h2c" {
		srv.Protocols = protocols((*http.Protocols).SetHTTP1, (*http.Protocols).SetUnencryptedHTTP2)
		return srv, nil
	}
	cert, err := certificate()
	srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	return srv, err
}

func TestOtherProtocolsUnderSwaps(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			m := newMaster(t)
			var answered, failed atomic.Int64
			done := make(chan struct{})
			m.swaps(k.worker, 200*time.Millisecond, func() {
				defer close(done)
				var all sync.WaitGroup
				for range 30 {
					all.Go(func() { hammer(t, k.protocols, k.scheme+"://"+m.addr, k.major, &answered, &failed) })
				}
				all.Wait()
			}, done)
			if failed.Load() > 0 || answered.Load() == 0 {
				t.Errorf("%d answered, %d failed", answered.Load(), failed.Load())
			}
		})
	}
}

// hammer sends requests for a while over a separate connection. It uses POST so that the client does not retry.
func hammer(t *testing.T, p *http.Protocols, url string, major int, answered, failed *atomic.Int64) {
	c := &http.Client{Transport: transport(p)}
	defer c.CloseIdleConnections()
	for end := time.Now().Add(800 * time.Millisecond); time.Now().Before(end); {
		answer, err := c.Post(url, "text/plain", nil)
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if answer.ProtoMajor != major {
				err = fmt.Errorf("HTTP/%d, want HTTP/%d", answer.ProtoMajor, major)
			}
		}
		if err != nil {
			failed.Add(1)
			t.Log(err)
			continue
		}
		answered.Add(1)
	}
}

// overHTTP2 runs a test with each variant of HTTP/2, against a server at url that stops for two minutes at most.
func overHTTP2(t *testing.T, test func(t *testing.T, s *served, p *http.Protocols, url string)) {
	for _, k := range kinds {
		if k.major != 2 {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			srv := must.Get(server(k.worker))(t)
			s := listening(t).serve(graceful.Options{Linger: 2 * time.Minute, Deadline: 2 * time.Minute}, asHTTP(srv))
			test(t, s, k.protocols, k.scheme+"://"+s.addr)
		})
	}
}

func TestIdleHTTP2ClientGetsGoAwayAtOnce(t *testing.T) {
	overHTTP2(t, func(t *testing.T, s *served, p *http.Protocols, url string) {
		c := &http.Client{Transport: transport(p)}
		defer c.CloseIdleConnections()
		slow := make(chan error, 1)
		begun, wait := listen(t)
		go func() { slow <- get(c, url+"/slow?d=400ms&begun="+begun) }()
		must.Do(t, get(c, url))
		wait()
		s.stop()
		must.Do(t, <-slow) // the open stream is served to its end
		s.endsAtOnce(t, "an idle HTTP/2 connection delayed the stop: it got no GOAWAY")
	})
}

func TestHTTP2ClientWhoseHandshakeEndsDuringTheStopIsAnsweredAndGetsGoAway(t *testing.T) {
	overHTTP2(t, func(t *testing.T, s *served, p *http.Protocols, url string) {
		connected, sentAway := make(chan struct{}), make(chan struct{})
		early, late := transport(p), transport(p)
		early.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			return &closing{c, sync.OnceFunc(func() { close(sentAway) })}, err
		}
		once := sync.OnceFunc(func() { close(connected) })
		late.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			once()
			<-sentAway
			return c, err
		}
		defer late.CloseIdleConnections()
		must.Do(t, get(&http.Client{Transport: early}, url))
		answered := make(chan error, 1)
		go func() { answered <- get(&http.Client{Transport: late}, url) }()
		<-connected
		s.stop()
		must.Do(t, <-answered)
		s.endsAtOnce(t, "an HTTP/2 connection that was new delayed the stop: it got no GOAWAY")
	})
}

func TestHTTP2ClientsWithoutARequestAreAnsweredDuringTheStop(t *testing.T) {
	overHTTP2(t, func(t *testing.T, s *served, p *http.Protocols, url string) {
		tr := transport(p)
		var clients []*http.ClientConn
		for range 30 {
			c := must.Get(tr.NewClientConn(s.ctx, strings.TrimSuffix(url, "://"+s.addr), s.addr))(t)
			defer c.Close()
			clients = append(clients, c)
		}
		s.stop()
		s.refuses(t)
		for _, c := range clients {
			request := must.Get(http.NewRequest("POST", url, nil))(t)
			answer := must.Get(c.RoundTrip(request))(t)
			must.Get(io.Copy(io.Discard, answer.Body))(t)
			answer.Body.Close()
		}
		s.endsAtOnce(t, "an HTTP/2 connection whose first request came during the stop delayed it: it got no GOAWAY")
	})
}

// refuses returns when the server does not listen any more.
func (s *served) refuses(t *testing.T) {
	t.Helper()
	for {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			if !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatal(err)
			}
			return
		}
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c) // until it has had its turn
		c.Close()
	}
}

func TestHTTP2ClientThatNeverAsksGetsGoAway(t *testing.T) {
	srv := must.Get(server("h2c"))(t)
	s := listening(t).serve(graceful.Options{Linger: 8 * time.Second, Deadline: 8 * time.Second}, asHTTP(srv))
	c := dial(t, s.addr)
	must.Get(io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+frame(0x4, 0)))(t) // SETTINGS
	if kind := readFrame(t, c); kind != 0x4 {
		t.Fatalf("frame 0x%x, want SETTINGS", kind)
	}
	must.Get(io.WriteString(c, frame(0x4, 0x1)))(t)
	s.stop()
	for kind := byte(0); kind != 0x7; { // GOAWAY
		kind = readFrame(t, c)
	}
	must.Do(t, c.Close())
	must.Do(t, <-s.done)
}

// frame is an empty frame of HTTP/2 (RFC 9113, 4.1).
func frame(kind, flags byte) string { return string([]byte{0, 0, 0, kind, flags, 0, 0, 0, 0}) }

// readFrame reads a frame, and returns its type.
func readFrame(t *testing.T, c net.Conn) byte {
	t.Helper()
	var header [9]byte
	must.Get(io.ReadFull(c, header[:]))(t)
	length := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
	must.Get(io.CopyN(io.Discard, c, length))(t)
	return header[3]
}

// closing is a connection that tells when its client closes it.
type closing struct {
	net.Conn
	closed func()
}

func (c *closing) Close() error {
	c.closed()
	return c.Conn.Close()
}

// endsAtOnce waits for the end of a Serve whose Deadline is two minutes.
func (s *served) endsAtOnce(t *testing.T, otherwise string) {
	t.Helper()
	select {
	case err := <-s.done:
		must.Do(t, err)
	case <-time.After(time.Minute):
		t.Error(otherwise)
	}
}

func get(c *http.Client, url string) error {
	answer, err := c.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

func TestTLSConnectionWithoutARequestIsNotCutOff(t *testing.T) {
	srv := must.Get(server("https"))(t)
	s := listening(t).serve(graceful.Options{Linger: 50 * time.Millisecond, Deadline: 2 * time.Minute}, asHTTP(srv))
	c := tls.Client(dial(t, s.addr), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	must.Do(t, c.Handshake())
	s.stop()
	s.endsAtOnce(t, "the handshake counts as a request")
}

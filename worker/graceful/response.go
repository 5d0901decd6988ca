package graceful

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// response decides whether to send the client away when the header is written, so that a request that was in flight
// when the stop began is answered with "Connection: close", too. It has every interface that net/http's own type has on
// HTTP/1, because handlers ask for them by type assertion; http.ResponseController finds the rest by Unwrap.
type response struct {
	http.ResponseWriter
	server  *httpServer
	decided bool
}

// decide adds "Connection: close" if the stop has begun. Only the first call counts: later the header is on its way.
func (w *response) decide() {
	if !w.decided && w.server.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	w.decided = true
}

func (w *response) WriteHeader(code int) {
	if code >= http.StatusOK { // others are not final, or (101) not an answer
		w.decide()
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *response) Write(b []byte) (int, error) {
	w.decide()
	return w.ResponseWriter.Write(b)
}

func (w *response) WriteString(s string) (int, error) {
	w.decide()
	return io.WriteString(w.ResponseWriter, s)
}

// ReadFrom keeps sendfile(2) for handlers that copy a file.
func (w *response) ReadFrom(r io.Reader) (int64, error) {
	w.decide()
	return io.Copy(w.ResponseWriter, r)
}

func (w *response) Flush() { _ = w.FlushError() }

func (w *response) FlushError() error {
	w.decide()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

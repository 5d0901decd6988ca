package servers

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// slowAnswer is the duration of a slow request.
const slowAnswer = 300 * time.Millisecond

// backend serves / and /slow at an address until the end of the test. The proxy in front of it is redeployed.
func backend(t testing.TB, address string) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	lab.Must(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "fast\n") })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(slowAnswer):
			io.WriteString(w, "slow\n")
		case <-r.Context().Done():
		}
	})
	server := &http.Server{Handler: mux}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(ln)
	}()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
}

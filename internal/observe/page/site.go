// Package page is what [supervisor] http serves: metrics, /healthz, /readyz, and a page that shows the state of all
// programs.
//
// The goroutine of each request asks the supervisor, within a time limit, so a client delays only itself. The number of
// clients, what they may send and how long they may take are bounded.
package page

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/worker/output"
)

// The limits on clients.
const (
	maxConns      = 64 // see clients.Gate
	maxHeader     = 8 << 10
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 20 * time.Second
	idleTimeout   = 90 * time.Second // longer than the usual interval between two scrapes
	closeTimeout  = time.Second
)

// Site serves metrics and the page. Set the exported fields, then call Serve.
type Site struct {
	Address   socket.Address
	Hosts     []string // names by which the page may be asked for, lower case, beside those that are always allowed
	TokenFile string   // "": the page is read-only
	Inherited int      // the socket of the image before this one (FD); 0 or less: none
	Log       *zap.Logger
	Metrics   http.Handler
	Status    func(context.Context) (*supervisor.Status, error)
	View      func(context.Context) (*View, error)

	Logs func(ctx context.Context, program string) (*output.Log, error)

	// Change answers POST /v1/…, of askedBy, who has the token.
	Change func(w http.ResponseWriter, r *http.Request, askedBy string)

	listener *pageListener
	gate     *clients.Gate
	http     *http.Server
	serving  sync.WaitGroup
	feed     feed
}

// View is what the page shows.
type View struct {
	Now    time.Time           `json:"now"` // in the time zone of the log
	Status *supervisor.Status  `json:"status"`
	Recent []supervisor.Update `json:"recent"` // oldest first, without the records of reloads and stops
	Token  bool                `json:"token"`  // a client with the token may change things
}

// Serve listens, and serves until Close.
func (s *Site) Serve() (err error) {
	if s.listener, err = listen(s.Address, s.Inherited); err != nil {
		return err
	}
	s.feed.open(s.viewText)
	s.gate = share(s.listener)
	s.http = &http.Server{
		Handler: s.routes(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, ConnState: s.gate.ConnState,
		ConnContext: clients.ConnContext,
	}
	s.http.ErrorLog, _ = zap.NewStdLogAt(s.Log, zap.DebugLevel) // the level is known
	s.serving.Go(func() {
		if err := s.http.Serve(s.gate); !errors.Is(err, http.ErrServerClosed) {
			s.Log.Error("metrics and the page are no longer served", zap.Error(err))
		}
	})
	return nil
}

// Addr is where the site listens, with the port that the kernel chose for port 0.
func (s *Site) Addr() net.Addr { return s.listener.Addr() }

// FD is a descriptor of the socket, for the next image, or -1. It belongs to the site until Close.
func (s *Site) FD() int { return s.listener.fd }

// Gate is what lets clients in.
func (s *Site) Gate() *clients.Gate { return s.gate }

// Notify says that something has changed. It never waits.
func (s *Site) Notify() { s.feed.notify() }

// Close ends every answer, and waits until nothing of the site runs any more.
func (s *Site) Close() {
	s.feed.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.listener.release()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close() //nolint:errcheck // nothing is left to lose
	}
	s.serving.Wait()
}

// Package page is what [supervisor] http serves: the metrics, /healthz, /readyz, and a page to look at that follows what goes on.
//
// Every question to the supervisor has a time limit and is asked by the goroutine of whoever wants the answer, so a client
// delays only itself; the number of clients, the size of what they may send and the time that they may take are bounded.
package page

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor"
)

// The limits on clients.
const (
	maxConns      = 64 // see clients.Listener
	maxHeader     = 8 << 10
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 20 * time.Second
	idleTimeout   = 90 * time.Second // more than the usual time between two scrapes
	closeTimeout  = time.Second
)

// Options is what a Server needs from outside.
type Options struct {
	Address   socket.Address
	Hosts     []string // names by which the page may be asked for, lower case, beside those that need not be listed
	TokenFile string   // "": nobody may change anything
	Inherited int      // the socket of the image before this one (FD); 0 or less: there is none
	Log       *zap.Logger
	Metrics   http.Handler
	Status    func(context.Context) (*supervisor.Status, error)
	State     func(context.Context) (*State, error)
	Asker     control.Asker // is asked for reloads, as the control API is
}

// State is what the page shows.
type State struct {
	Now     time.Time           `json:"now"`
	Status  *control.Status     `json:"status"`
	Details map[string]Detail   `json:"details"` // by program
	Recent  []supervisor.Update `json:"recent"`  // oldest first
	Token   bool                `json:"token"`   // who has the token may reload
}

// Detail is what the status of a program does not say.
type Detail struct {
	Receipts []receipt.Receipt `json:"receipts"` // the newest first; those that are not complete too
}

// Server serves metrics and the page.
type Server struct {
	Options
	listener net.Listener
	socket   *control.Socket // nil: it is no unix socket
	held     int             // a duplicate of listener; -1: there is none
	http     *http.Server
	ctx      context.Context // of everything that has no end of its own
	cancel   context.CancelFunc
	serving  sync.WaitGroup

	sequence atomic.Uint64 // how often something has changed
	mu       sync.Mutex
	streams  map[*stream]bool
	text     []byte // of the state, as it was after textOf changes
	textOf   uint64
	textAt   time.Time
}

// Serve listens, and serves until Close.
func Serve(o Options) (*Server, error) {
	l, socket, err := listen(o.Address, o.Inherited)
	if err != nil {
		return nil, err
	}
	held, err := duplicate(l)
	if err != nil {
		held = -1 // the next image listens anew
	}
	s := &Server{Options: o, listener: l, socket: socket, held: held, streams: map[*stream]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	shared := share(l)
	s.http = &http.Server{
		Handler: s.routes(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, ErrorLog: log.New(quiet{o.Log}, "", 0),
		ConnState: shared.ConnState,
	}
	s.serving.Go(func() {
		if err := s.http.Serve(shared); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("metrics and the page are no longer served", zap.Error(err))
		}
	})
	return s, nil
}

// Address is where the server listens, with the port that the kernel chose for port 0.
func (s *Server) Address() string { return s.listener.Addr().String() }

// FD is a descriptor of the socket, for the next image, or -1. It is the server's until Close.
func (s *Server) FD() int { return s.held }

// Close ends every answer, and waits until nothing of the server runs any more.
func (s *Server) Close() {
	s.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.socket != nil {
		s.socket.Close()
		s.socket = nil
	}
	if s.held >= 0 {
		unix.Close(s.held)
		s.held = -1
	}
	if s.http.Shutdown(ctx) != nil {
		s.http.Close() //nolint:errcheck // nothing is left to lose
	}
	s.serving.Wait()
}

// quiet keeps what net/http complains about out of the log, unless somebody looks for it.
type quiet struct{ log *zap.Logger }

func (q quiet) Write(p []byte) (int, error) {
	q.log.Debug("http: " + string(p))
	return len(p), nil
}

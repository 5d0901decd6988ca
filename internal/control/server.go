package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/observe/receipt"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// The limits on what a client may send, and on how long it may take.
const (
	maxHeader     = 16 << 10
	maxBody       = 64 << 10
	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second
	idleTimeout   = time.Minute
	writeTimeout  = 10 * time.Second // of an answer, or of one line of a stream
	closeTimeout  = time.Second      // for the last lines of streams, as the server ends
	leaveTimeout  = 5 * time.Second  // for everything else that must end with the server
)

// How long the loop may take to answer. A reload reads files and looks up names first.
const (
	askTimeout    = 10 * time.Second
	reloadTimeout = time.Minute
)

var errSlow = errors.New("supervisord has not answered in time")

// ErrLeft says that something of a server still runs after Close: a connection that the kernel does not close, for example.
var ErrLeft = errors.New("not all connections could be closed in time")

// Asker is the door to the loop: a supervisor.Supervisor.
type Asker interface {
	Do(ctx context.Context, r supervisor.Request) (any, error)
}

// Options is what a Server needs.
type Options struct {
	Path      string // of the socket
	Other     string // where it is if somebody else answers there; "": nowhere
	Config    string // the configuration file, absolute: see ConfigHeader
	Mode      fs.FileMode
	Access    Access
	Inherited int // the descriptor that the image before this one listened on; -1: none
	Asker     Asker
	Log       *zap.Logger
	Version   string
	Gauge     *Gauge
	Receipts  func(program string, records []program.ReloadRecord) []receipt.Receipt // the newest first
}

// Server answers on the control socket.
type Server struct {
	Options
	rights  rights
	socket  *Socket
	http    *http.Server
	serving sync.WaitGroup // the listener and every handler
}

// Serve opens the control socket, or takes over the inherited one if that is where it should be, and answers on it until Close.
// Errors: ErrInUse (wrapped) if another supervisord answers there.
func Serve(o Options) (*Server, error) {
	s := &Server{Options: o}
	var err error
	if s.rights, err = o.Access.lookUp(); err != nil {
		return nil, fmt.Errorf("control_group: %w", err)
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	l, err := s.socket.Listener()
	if err != nil {
		s.socket.Close()
		return nil, err
	}
	foreign.RefuseRights(s.socket.FD()) // before Linux 6.16: see client
	shared := s.share(l)
	s.http = &http.Server{
		Handler: s.counted(s.routes()), MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: idleTimeout,
		ErrorLog:  log.New(discard{o.Log}, "", 0),
		ConnState: shared.ConnState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return withClient(ctx, c.(*clients.Conn).Conn.(*client))
		},
	}
	s.serving.Go(func() {
		if err := s.http.Serve(shared); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("the control socket is closed", zap.Error(err))
		}
	})
	return s, nil
}

// open takes the inherited socket over, or opens a new one.
func (s *Server) open() error {
	gid := -1
	if s.rights.group != nil {
		gid = int(*s.rights.group)
	}
	if s.Inherited >= 0 {
		old, err := InheritSocket(s.Inherited)
		switch {
		case err != nil:
			return err
		case (old.Path() == s.Path || old.Path() == s.Other) && old.Reachable():
			s.socket = old
			return old.Permit(s.Mode, gid)
		}
		old.Close() // the configuration has another place for it now, or somebody took it away
	}
	var err error
	s.socket, err = OpenSocket(s.Path, s.Mode, gid)
	if !errors.Is(err, ErrInUse) || s.Other == "" {
		return err
	}
	taken := err
	if s.socket, err = OpenSocket(s.Other, s.Mode, gid); err == nil {
		s.Log.Warn("the control socket is elsewhere; commands find it by -c", zap.String("path", s.Other), zap.Error(taken))
	}
	return err
}

// FD is the descriptor of the listening socket, to be handed over to the next image: Options.Inherited there.
func (s *Server) FD() int { return s.socket.FD() }

// Close ends every answer and removes the socket, if it is still this server's. It waits until nothing of the server runs any more, at
// most 6 s: then it returns ErrLeft.
func (s *Server) Close() error {
	s.socket.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.shutDown()
	}()
	limit := time.NewTimer(closeTimeout + leaveTimeout)
	defer limit.Stop()
	select {
	case <-ended:
		return nil
	case <-limit.C:
		return ErrLeft
	}
}

func (s *Server) shutDown() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close() //nolint:errcheck // nothing is left to lose
	}
	s.serving.Wait()
}

// counted lets Close wait for the handlers.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serving.Add(1)
		defer s.serving.Done()
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout + reloadTimeout)) //nolint:errcheck // it is a socket
		next.ServeHTTP(w, r)
	})
}

// ask has the loop answer a request, within limit.
func (s *Server) ask(ctx context.Context, limit time.Duration, r supervisor.Request) (any, error) {
	return askWithin(ctx, s.Asker, limit, r)
}

func askWithin(ctx context.Context, loop Asker, limit time.Duration, r supervisor.Request) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	return loop.Do(ctx, r)
}

// discard keeps what net/http complains about out of the log, unless somebody looks for it.
type discard struct{ log *zap.Logger }

func (d discard) Write(p []byte) (int, error) {
	d.log.Debug("control: " + string(p))
	return len(p), nil
}

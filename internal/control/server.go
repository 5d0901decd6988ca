// Package control is the control socket: HTTP and JSON on a unix socket, and its client. docs/control.md explains how
// to use it, docs/openapi.yaml describes it exactly.
//
// The server passes requests to the loop, whose answers are buffered, and follows the loop's reports through a channel.
// The loop drops the channel if the client does not read. So a client delays only itself; limits on size, time and
// number keep the cost small. Handlers run on goroutines of net/http, and reach the state of the loop only through
// requests.
package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/observe/usage"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/unixpath"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/output"
)

// The limits on the size and the duration of requests and answers.
const (
	maxHeader     = 16 << 10
	maxBody       = 64 << 10
	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second
	idleTimeout   = time.Minute
	writeTimeout  = 10 * time.Second // of an answer, or of one line of a stream
	closeTimeout  = time.Second      // for the last lines of streams when the server ends
	leaveTimeout  = 5 * time.Second  // for everything else that must end with the server
)

// How long the loop may take to answer. A reload reads files and looks up names first.
const (
	askTimeout    = 10 * time.Second
	reloadTimeout = time.Minute
)

var errSlow = errors.New("supervisord did not answer in time")

// errLeft says that something still runs after Close, such as a connection that hangs in the kernel.
var errLeft = errors.New("not all connections could be closed in time")

// requests are the methods of supervisor.Supervisor that the API needs.
type requests interface {
	Reload(context.Context, supervisor.ReloadOptions) ([]supervisor.Ticket, error)
	Act(ctx context.Context, name string, e program.Event) (supervisor.Ticket, error)
	Signal(context.Context, supervisor.SignalOptions) error
	SetLevel(ctx context.Context, level, askedBy string) error
	Status(context.Context) (*supervisor.Status, error)
	Logs(ctx context.Context, name string) (*output.Log, error)
	Subscribe(context.Context) (<-chan *supervisor.Update, error)
	Unsubscribe(<-chan *supervisor.Update)
	Upgrade(ctx context.Context, askedBy string) error
}

// API answers on the control socket. Set the exported fields, then call Serve.
type API struct {
	Path   string // of the socket
	Other  string // where the socket is if another supervisord has Path; "": nowhere
	Config string // the configuration file, absolute: see configHeader
	Mode   fs.FileMode
	// name or number of the group that may change things, beside root and the supervisor's own user; "": none
	Group     string
	Read      bool // everybody may read
	Inherited int  // the descriptor that the image before this one listened on; -1: none
	Loop      requests
	Log       *zap.Logger
	Gauge     *usage.Gauge

	rights  rights
	users   users
	socket  *unixpath.Own
	gate    *clients.Gate
	http    *http.Server
	serving sync.WaitGroup // the listener and every handler
}

// Serve opens the control socket, or takes over the inherited socket if its path is right, and answers requests
// until Close. Errors: unixpath.ErrInUse (wrapped) if another supervisord answers there. After an error the caller may
// call Serve again.
func (a *API) Serve() (err error) {
	if a.rights, err = lookUpRights(a.Group, a.Read); err != nil {
		return fmt.Errorf("control_group: %w", err)
	}
	if a.users.look == nil {
		a.users.look = proc.UserName
	}
	if err := a.open(); err != nil {
		return err
	}
	l, err := a.socket.Listener()
	if err != nil {
		a.socket.Close()
		a.Inherited = -1
		return err
	}
	foreign.RefuseRights(a.socket.FD()) // before Linux 6.16: see peerConn
	a.gate = a.share(l)
	a.http = &http.Server{
		Handler: a.counted(a.routes()), MaxHeaderBytes: maxHeader, ConnState: a.gate.ConnState,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: idleTimeout,
		ConnContext: clients.ConnContext,
	}
	a.http.ErrorLog, _ = zap.NewStdLogAt(a.Log, zap.DebugLevel) // the level is known
	a.serving.Go(func() {
		if err := a.http.Serve(a.gate); !errors.Is(err, http.ErrServerClosed) {
			a.Log.Error("the control socket is closed", zap.Error(err))
		}
	})
	return nil
}

// open takes over the inherited socket, or opens a new one.
func (a *API) open() error {
	gid := -1
	if a.rights.group != nil {
		gid = int(*a.rights.group)
	}
	if inherited := a.Inherited; inherited >= 0 {
		a.Inherited = -1 // once only
		old, err := unixpath.InheritOwn(inherited)
		switch {
		case err != nil:
			return err
		case (old.Path() == a.Path || old.Path() == a.Other) && old.Reachable():
			if err := old.Permit(a.Mode, gid); err != nil {
				old.Close()
				return err
			}
			a.socket = old
			return nil
		}
		old.Close() // the configuration has another path now, or the old path is gone
	}
	var err error
	a.socket, err = unixpath.OpenOwn(a.Path, a.Mode, gid)
	if !errors.Is(err, unixpath.ErrInUse) || a.Other == "" {
		return err
	}
	inUse := err
	if a.socket, err = unixpath.OpenOwn(a.Other, a.Mode, gid); err == nil {
		a.Log.Warn("the control socket has another path; commands find the socket by -c", zap.String("path", a.Other),
			zap.Error(inUse))
	}
	return err
}

// Gate is what lets clients in.
func (a *API) Gate() *clients.Gate { return a.gate }

// FD is the descriptor of the listening socket, for the next image.
func (a *API) FD() int { return a.socket.FD() }

// Close ends every answer and removes the socket, if the socket is still this API's. It waits at most 6 s for the
// handlers, and then returns errLeft.
func (a *API) Close() error {
	a.socket.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.shutDown()
	}()
	limit := time.NewTimer(closeTimeout + leaveTimeout)
	defer limit.Stop()
	select {
	case <-ended:
		return nil
	case <-limit.C:
		return errLeft
	}
}

func (a *API) shutDown() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if a.http.Shutdown(ctx) != nil {
		a.http.Close() //nolint:errcheck // nothing is left to lose
	}
	a.serving.Wait()
}

// counted lets Close wait for the handlers.
func (a *API) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.serving.Add(1)
		defer a.serving.Done()
		deadline := time.Now().Add(writeTimeout + reloadTimeout)
		http.NewResponseController(w).SetWriteDeadline(deadline) //nolint:errcheck // it is a socket
		next.ServeHTTP(w, r)
	})
}

// ask puts a request to the loop that the loop answers within askTimeout.
func ask[T any](ctx context.Context, request func(context.Context) (T, error)) (answer T, err error) {
	err = within(ctx, askTimeout, func(ctx context.Context) error {
		answer, err = request(ctx)
		return err
	})
	return answer, err
}

// within puts a request to the loop, with a time limit.
func within(ctx context.Context, limit time.Duration, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	return request(ctx)
}

// status asks for the status of one program, or of all ("").
func (a *API) status(ctx context.Context, name string) (*supervisor.Status, error) {
	st, err := ask(ctx, a.Loop.Status)
	if err != nil || name == "" {
		return st, err
	}
	return st.Only(name)
}

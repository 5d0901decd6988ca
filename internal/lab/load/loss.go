package load

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Kind says how a request was lost. Its text is the word in JSON.
type Kind string

// The kinds of loss.
const (
	Refused  Kind = "refused" // no connection: nobody listens, or the queue of a unix socket is full
	Reset    Kind = "reset"   // the connection was cut with RST
	Closed   Kind = "closed"  // the connection was closed before the whole answer had come
	TimedOut Kind = "timeout" // no whole answer in time
	Status5  Kind = "5xx"     // a server error as the answer
	Other    Kind = "other"   // anything else: another status of 400 or more, not HTTP, no port or descriptor left for the client
)

// Kinds lists all kinds of loss, the worst first.
var Kinds = []Kind{Refused, Reset, Closed, TimedOut, Status5, Other}

// Loss is why a request was lost.
type Loss struct {
	Kind   Kind
	Reused bool // on a connection that had carried a request before
	Text   string

	abandoned bool // cut by Client.Abandon
}

func (l *Loss) Error() string { return l.Text }

// errClosed is the loss of a request that would have crossed the close of its connection.
var errClosed = errors.New("the worker closed")

// lost classifies an error; nil stays nil.
func lost(err error, reused bool) *Loss {
	if err == nil {
		return nil
	}
	return &Loss{Kind: KindOf(err), Reused: reused, Text: err.Error()}
}

// KindOf classifies an error of the network or of an Ask.
func KindOf(err error) Kind {
	var late net.Error
	var status *statusError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EAGAIN):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Reset
	case errors.As(err, &late) && late.Timeout():
		return TimedOut
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errClosed):
		return Closed
	case errors.As(err, &status) && status.code >= 500:
		return Status5
	}
	return Other
}

package load

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// LossKind says how a request was lost. Its text is the word in JSON.
type LossKind string

// The kinds of loss.
const (
	Refused  LossKind = "refused" // no connection: nothing listens, or the queue of a unix socket is full
	Reset    LossKind = "reset"   // the connection was cut with RST
	Closed   LossKind = "closed"  // the connection was closed before the whole answer had come
	TimedOut LossKind = "timeout" // no whole answer in time
	Status5  LossKind = "5xx"     // a server error as the answer
	Other    LossKind = "other"   // anything else: another status of 400 or more, not HTTP, no port or descriptor left for the client
)

// Kinds lists all kinds of loss, the worst first.
var Kinds = []LossKind{Refused, Reset, Closed, TimedOut, Status5, Other}

// Lost says why a request was lost.
type Lost struct {
	Kind   LossKind
	Reused bool // on a connection that had carried a request before
	Text   string

	abandoned bool // cut by Driver.Abandon
}

func (l *Lost) Error() string { return l.Text }

// errClosed is the loss of a request that would have crossed the close of its connection.
var errClosed = errors.New("the worker closed")

// lost classifies an error; nil stays nil.
func lost(err error, reused bool) *Lost {
	if err == nil {
		return nil
	}
	return &Lost{Kind: kindOf(err), Reused: reused, Text: err.Error()}
}

// kindOf classifies an error of the network or of an Ask.
func kindOf(err error) LossKind {
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

package prove

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// Kind is how a request was lost. Its text is the word in JSON.
type Kind string

// The kinds of loss.
const (
	Answered Kind = ""        // not lost
	Refused  Kind = "refused" // no connection: nobody listens, or the queue of a unix socket is full
	Reset    Kind = "reset"   // the connection was cut with RST
	Closed   Kind = "closed"  // the connection was closed before the whole answer had come
	TimedOut Kind = "timeout" // no whole answer within Options.Timeout
	Status5  Kind = "5xx"     // the answer was an error of the server
	Other    Kind = "other"   // anything else: another status of 400 and more, what is no HTTP, a client out of ports or descriptors
)

// kinds are all kinds of loss, the worst first.
var kinds = []Kind{Refused, Reset, Closed, TimedOut, Status5, Other}

// words is how a person calls each kind.
var words = map[Kind]string{
	Refused: "refused", Reset: "reset", Closed: "closed while waiting", TimedOut: "timed out", Status5: "5xx", Other: "other",
}

// loss is why one request was lost.
type loss struct {
	kind   Kind
	reused bool // on a connection that had carried a request before
	text   string
}

func (l *loss) Error() string { return l.text }

// lost classifies an error of the network.
func lost(err error, reused bool) *loss {
	return &loss{kind: kindOf(err), reused: reused, text: err.Error()}
}

func kindOf(err error) Kind {
	var late net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EAGAIN):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Reset
	case errors.As(err, &late) && late.Timeout():
		return TimedOut
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Closed
	}
	return Other
}

// lostStatus is the loss that a status of 400 or more is; nil: it is none.
func lostStatus(code int, reused bool) *loss {
	l := &loss{reused: reused, text: fmt.Sprintf("status %d", code)}
	switch {
	case code >= 500:
		l.kind = Status5
	case code >= 400:
		l.kind = Other
	default:
		return nil
	}
	return l
}

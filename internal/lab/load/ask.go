package load

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"
)

// HTTP asks with the request r, which must have a GetBody if it has a body. An answer with a status of 400 or more is a
// loss. With see, the whole body is read into memory and given to see, whose error makes the request a loss; without,
// it is discarded.
func HTTP(r *http.Request, see func(answer *http.Response, body []byte) error) Ask {
	return func(c *Wire, last bool) (bool, error) {
		var body bytes.Buffer
		into := io.Writer(&body)
		if see == nil {
			into = io.Discard
		}
		answer, err := Exchange(c, r, last, into)
		if err != nil {
			return true, err
		}
		if answer.StatusCode >= 400 {
			err = &statusError{answer.StatusCode}
		} else if see != nil {
			err = see(answer, body.Bytes())
		}
		return answer.Close, err
	}
}

// Get is HTTP with GET, for a URL that must be valid.
func Get(url string, see func(answer *http.Response, body []byte) error) Ask {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return func(*Wire, bool) (bool, error) { return true, err }
	}
	return HTTP(r, see)
}

// Parts is Get of a worker's "/parts": n lines with a pause between two of them. A short answer that looks whole is a
// loss, too.
func Parts(n int, pause time.Duration) Ask {
	return Get(fmt.Sprintf("http://test/parts?n=%d&pause=%s", n, pause), func(_ *http.Response, body []byte) error {
		if got := bytes.Count(body, []byte("\n")); got != n {
			return fmt.Errorf("%d of %d parts: %w", got, n, io.ErrUnexpectedEOF)
		}
		return nil
	})
}

// Echo sends a datagram, and takes its answer, which must be the same.
func Echo(c *Wire, _ bool) (closes bool, err error) {
	const hello = "hello"
	if _, err := io.WriteString(c.Conn, hello); err != nil {
		return true, err
	}
	var buffer [64]byte
	n, err := c.Conn.Read(buffer[:])
	if err == nil && string(buffer[:n]) != hello {
		err = fmt.Errorf("the answer is %q", buffer[:n])
	}
	return true, err
}

// InTurn asks one after the other on the same connection, which counts as one request.
func InTurn(asks ...Ask) Ask {
	return func(c *Wire, last bool) (closes bool, err error) {
		for i, ask := range asks {
			if closes, err = ask(c, last && i == len(asks)-1); err != nil {
				return closes, err
			}
		}
		return closes, nil
	}
}

// Exchange sends r and copies the body of the final answer to into.
func Exchange(c *Wire, r *http.Request, last bool, into io.Writer) (*http.Response, error) {
	once := *r
	once.Close = last
	if r.GetBody != nil {
		var err error
		if once.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	if err := once.Write(c); err != nil {
		return nil, err
	}
	for {
		answer, err := http.ReadResponse(c.In, &once)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(into, answer.Body); err != nil {
			return nil, err
		}
		answer.Body.Close() //nolint:errcheck // it was read to its end
		answer.Body = http.NoBody
		if answer.StatusCode >= 200 { // 1xx: the final one follows
			return answer, nil
		}
	}
}

// Bare sends nothing: it only connects.
func Bare(*Wire, bool) (bool, error) { return true, nil }

// Farewell sends FIN and reads until the server closes, too: this shows that a server took the connection out of the
// queue.
func Farewell(c *Wire, _ bool) (bool, error) {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); err != nil {
			return true, err
		}
	}
	_, err := io.Copy(io.Discard, c)
	return true, err
}

// statusError is an answer that counts as a loss.
type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("status %d", e.code) }

// Measure turns any function into a request, for Load.Repeat.
func Measure(request func() error) func(since time.Time) Attempt {
	return func(since time.Time) Attempt {
		began := time.Now()
		err := request()
		return Attempt{began.Sub(since), time.Since(began), lost(err, false)}
	}
}

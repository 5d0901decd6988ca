package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"example.org/supervisord/tests/soak/account"
)

type entryKey struct{}

// keep has the server note its connections in the account.
func (w *worker) keep(srv *http.Server) {
	var entries sync.Map // net.Conn to *account.Row
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		e := w.book.Take(portOf(c.RemoteAddr()))
		entries.Store(c, e)
		return context.WithValue(ctx, entryKey{}, e)
	}
	srv.ConnState = func(c net.Conn, state http.ConnState) {
		if state != http.StateClosed && state != http.StateHijacked {
			return
		}
		e, _ := entries.LoadAndDelete(c)
		if state == http.StateClosed { // a hijacked connection drops its own
			w.book.Drop(e.(*account.Row))
		}
	}
}

func portOf(a net.Addr) int {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.Port
	case *net.UDPAddr:
		return a.Port
	}
	return 0
}

func entryOf(r *http.Request) *account.Row { return r.Context().Value(entryKey{}).(*account.Row) }

// text is the answer to a request.
func (w *worker) text(id uint64) []byte {
	return account.Answer{ID: id, PID: w.book.PID, Generation: w.book.Generation, Started: w.book.Started,
		Poison: w.poison}.Text()
}

// answer answers at once.
func (w *worker) answer(to http.ResponseWriter, r *http.Request) {
	w.reply(to, r, 0, func(io.Writer) error { return nil })
}

// download answers with the body that belongs to the request, after a first line that says who answers. With steps it
// sends the body in so many parts and waits before each, for 100 ms or what pause says, otherwise as fast as the client
// reads.
func (w *worker) download(to http.ResponseWriter, r *http.Request) {
	size, err := strconv.Atoi(r.URL.Query().Get("size"))
	if err != nil {
		http.Error(to, "size: "+err.Error(), http.StatusBadRequest)
		return
	}
	steps := 1
	if text := r.URL.Query().Get("steps"); text != "" {
		if steps, err = strconv.Atoi(text); err != nil || steps < 1 || size%steps != 0 {
			http.Error(to, "steps divide size", http.StatusBadRequest)
			return
		}
	}
	pause := 100 * time.Millisecond
	if text := r.URL.Query().Get("pause"); text != "" {
		if pause, err = time.ParseDuration(text); err != nil {
			http.Error(to, "pause: "+err.Error(), http.StatusBadRequest)
			return
		}
	}
	id, _ := strconv.ParseUint(r.PathValue("id"), 16, 64)
	body := account.Body(id)
	w.reply(to, r, size, func(to io.Writer) error {
		for range steps {
			if steps > 1 {
				if err := http.NewResponseController(to.(http.ResponseWriter)).Flush(); err != nil {
					return err
				}
				time.Sleep(pause)
			}
			if _, err := io.CopyN(to, body, int64(size/steps)); err != nil {
				return err
			}
		}
		return nil
	})
}

// reply notes the request, answers with the text and size more bytes, and notes that the kernel has it all.
func (w *worker) reply(to http.ResponseWriter, r *http.Request, size int, more func(io.Writer) error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 16, 64)
	if err != nil {
		http.Error(to, "id: "+err.Error(), http.StatusBadRequest)
		return
	}
	e := entryOf(r)
	w.book.Begin(e, id)
	text := w.text(id)
	if size > 0 {
		text = append(text, '\n')
	}
	to.Header()["Content-Length"] = []string{strconv.Itoa(len(text) + size)}
	if _, err = to.Write(text); err == nil {
		err = more(to)
	}
	if err == nil {
		err = http.NewResponseController(to).Flush()
	}
	if err == nil { // otherwise the client has gone
		w.book.End(e, id)
	}
}

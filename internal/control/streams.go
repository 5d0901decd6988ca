package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"example.org/supervisord/internal/clients"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/worker/output"
)

// ndjson writes one JSON object a line, each at once. After an error it writes no more.
type ndjson struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

// newLines begins an answer that is a stream of lines.
func newLines(w http.ResponseWriter) *ndjson {
	l := &ndjson{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "application/x-ndjson")
	l.flush()
	return l
}

func (l *ndjson) write(v any) {
	if l.err == nil {
		l.control.SetWriteDeadline(time.Now().Add(writeTimeout)) //nolint:errcheck // it is a socket
		l.err = json.NewEncoder(l.w).Encode(v)
		l.flush()
	}
}

func (l *ndjson) flush() { l.err = errors.Join(l.err, l.control.Flush()) }

// eventLine is a line of GET /v1/events: an update, or, as the last line, why there are no more.
type eventLine struct {
	*supervisor.Update
	*APIError
}

func (a *API) events(w http.ResponseWriter, r *http.Request) error {
	name := r.FormValue("program")
	if _, err := a.status(r.Context(), name); err != nil {
		return err
	}
	updates, err := ask(r.Context(), a.Loop.Subscribe)
	if err != nil {
		return err
	}
	defer a.Loop.Unsubscribe(updates)
	clients.Lasts(r.Context())
	for out := newLines(w); out.err == nil; {
		select {
		case u, open := <-updates:
			if !open {
				out.write(eventLine{APIError: apiError(Stopping,
					"the events end here: supervisord ends, or this client was too slow", "connect again")})
				return nil
			}
			if name == "" || u.Program == name {
				out.write(eventLine{Update: u})
			}
		case <-r.Context().Done():
			return nil
		}
	}
	return nil
}

// LogEntry is a line of …/logs.
type LogEntry struct {
	*output.LogLine
	Missed uint64 `json:"missed,omitempty"` // lines that were dropped before they could be sent
}

// maxLines bounds ?lines=. supervisord keeps fewer lines.
const maxLines = 1_000_000

// logs answers with the last lines of a program's workers, and with ?follow=yes also with all later lines.
func (a *API) logs(w http.ResponseWriter, r *http.Request) error {
	n := 100
	if text := r.FormValue("lines"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 0 || n > maxLines {
			return apiError(BadRequest, fmt.Sprintf("lines: %q is not a number of lines", text),
				fmt.Sprintf("write 0 to %d", maxLines))
		}
	}
	follow, err := yes(r, "follow", false)
	if err != nil {
		return err
	}
	log, err := ask(r.Context(), func(ctx context.Context) (*output.Log,
		error) {
		return a.Loop.Logs(ctx, r.PathValue("name"))
	})
	if err != nil {
		return err
	}
	out := newLines(w)
	if follow {
		clients.Lasts(r.Context())
	}
	last, reader := log.Last(n)
	out.entries(last, 0)
	for follow && out.err == nil {
		lines, missed, err := reader.Next(r.Context())
		if err != nil {
			return nil
		}
		out.entries(lines, missed)
	}
	return nil
}

func (l *ndjson) entries(lines []output.LogLine, missed uint64) {
	if missed > 0 {
		l.write(LogEntry{Missed: missed})
	}
	for i := range lines {
		l.write(LogEntry{LogLine: &lines[i]})
	}
}

package control

import (
	"fmt"
	"net/http"
	"strconv"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/worker/output"
)

// LogEntry is a line of …/logs.
type LogEntry struct {
	*output.LogLine
	Missed uint64 `json:"missed,omitempty"` // lines that were dropped before they could be sent
}

// maxLines bounds what ?lines= can ask for; what is kept is less.
const maxLines = 1_000_000

// logs answers with the last lines that a program's workers wrote, and, with ?follow=yes, with those that follow.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	n, follow := 100, r.FormValue("follow")
	if text := r.FormValue("lines"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 0 || n > maxLines {
			return problem(BadRequest, fmt.Sprintf("lines: %q is no number of lines", text), fmt.Sprintf("write 0 to %d", maxLines))
		}
	}
	if follow != "" && follow != "yes" && follow != "no" {
		return problem(BadRequest, fmt.Sprintf("follow: %q is not known", follow), "write yes or no")
	}
	v, err := s.ask(r.Context(), askTimeout, supervisor.LogsRequest{Program: r.PathValue("name")})
	if err != nil {
		return err
	}
	out := newLines(w)
	out.begin()
	last, reader := v.(*output.Log).Last(n)
	out.entries(last, 0)
	for follow == "yes" && out.err == nil {
		lines, missed, err := reader.Next(r.Context())
		if err != nil {
			return nil
		}
		out.entries(lines, missed)
	}
	return nil
}

func (l *lines) entries(lines []output.LogLine, missed uint64) {
	if missed > 0 {
		l.write(LogEntry{Missed: missed}) //nolint:errcheck // looked at by whoever called
	}
	for i := range lines {
		l.write(LogEntry{LogLine: &lines[i]}) //nolint:errcheck // likewise
	}
}

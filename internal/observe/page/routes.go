package page

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"example.org/supervisord/internal/observe/metrics"
)

//go:embed static
var static embed.FS

// headers hold for every answer. The page uses nothing from elsewhere, and nobody may put it into a frame.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-store",
}

func (s *Server) routes() http.Handler {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // it is compiled in
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", http.FileServerFS(files))
	mux.Handle("GET /page.js", http.FileServerFS(files))
	mux.Handle("GET /page.css", http.FileServerFS(files))
	mux.Handle("GET /icon.svg", http.FileServerFS(files))
	mux.Handle("GET /metrics", s.Metrics)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /state", s.stateOnce)
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("POST /reload", s.reload)
	return s.guarded(http.NewCrossOriginProtection().Handler(mux))
}

// guarded adds the headers, and refuses a browser that was led here by a name of somebody else (DNS rebinding).
func (s *Server) guarded(next http.Handler) http.Handler {
	names := s.names()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !s.open(r.URL.Path) && !known(r.Host, names) {
			http.Error(w, "use the address, or localhost, instead of the name "+r.Host+", or list that name in http_hosts", http.StatusMisdirectedRequest)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxHeader)
		next.ServeHTTP(w, r)
	})
}

// open reports whether a path may be asked for by any name: on a unix socket, which no browser reaches, and where machines ask for
// numbers over a network that is expected to be closed.
func (s *Server) open(path string) bool {
	switch {
	case s.Options.Address.IsUnix():
		return true
	case s.Options.Address.IsLoopback():
		return false
	}
	return path == "/metrics" || path == "/healthz" || path == "/readyz"
}

// names are those that nobody else can have: the ones in the configuration, and the machine's own.
func (s *Server) names() map[string]bool {
	names := map[string]bool{}
	for _, name := range s.Hosts {
		names[name] = true
	}
	names[strings.ToLower(s.Options.Address.Host())] = true
	if host, err := os.Hostname(); err == nil {
		names[strings.ToLower(host)] = true
	}
	delete(names, "")
	return names
}

// known reports whether a Host header is an address, one of these names, or a name without a dot, which is looked up only nearby.
func known(host string, names map[string]bool) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	_, bad := netip.ParseAddr(name)
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return bad == nil || names[name] || name != "" && !strings.ContainsAny(name, ".:")
}

// healthz says whether the supervisor's loop answers.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	if _, err := s.Status(r.Context()); err != nil {
		http.Error(w, "the supervisor does not answer: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// readyz says whether every program serves, and which do not.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	st, err := s.Status(r.Context())
	if err != nil {
		http.Error(w, "the supervisor does not answer: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	var missing []string
	for _, p := range st.Programs {
		if !metrics.Serves(p) {
			missing = append(missing, p.Summary)
		}
	}
	if len(missing) > 0 || st.Stopping {
		http.Error(w, "not every program serves: "+strings.Join(missing, "; "), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *Server) stateOnce(w http.ResponseWriter, r *http.Request) {
	text, err := s.state(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(text) //nolint:errcheck // the client has gone
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v) //nolint:errcheck // the client has gone
}

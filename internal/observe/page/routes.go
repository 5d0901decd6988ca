package page

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

//go:embed static
var static embed.FS

// headers go with every answer. The page uses nothing from elsewhere, and no other page may put it into a frame.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src " +
		"'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-store",
}

// types of the files of the page, by extension: to look them up takes 400 kB for good.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml",
}

func (s *Site) routes() http.Handler {
	mux := http.NewServeMux()
	files, _ := static.ReadDir("static") // it is embedded
	for _, f := range files {
		path := strings.TrimSuffix(f.Name(), "index.html")
		if path == "" {
			path = "{$}"
		}
		mux.HandleFunc("GET /"+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", types[filepath.Ext(f.Name())])
			http.ServeFileFS(w, r, static, "static/"+f.Name())
		})
	}
	mux.Handle("GET /metrics", s.Metrics)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /state", s.viewOnce)
	mux.HandleFunc("GET /history", s.history)
	mux.Handle("GET /events", &s.feed)
	mux.HandleFunc("POST /unlock", s.forHolder(unlock))
	mux.HandleFunc("GET /logs", s.forHolder(s.logs))
	mux.HandleFunc("POST /v1/", s.forHolder(s.change))
	return s.guarded(http.NewCrossOriginProtection().Handler(mux))
}

// guarded adds the headers, and refuses a browser that came by another site's name (DNS rebinding).
func (s *Site) guarded(next http.Handler) http.Handler {
	names := s.names()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !s.anyName(r.URL.Path) && !known(r.Host, names) {
			http.Error(w, "use the address, or localhost, instead of the name "+r.Host+", or list that name in http_hosts",
				http.StatusMisdirectedRequest)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxHeader)
		next.ServeHTTP(w, r)
	})
}

// anyName reports whether a path may be asked for by any name: on a unix socket, which no browser reaches, and where
// machines ask for numbers over a network that is expected to be closed.
func (s *Site) anyName(path string) bool {
	switch {
	case s.Address.IsUnix():
		return true
	case s.Address.IsLoopback():
		return false
	}
	return path == "/metrics" || path == "/healthz" || path == "/readyz"
}

// names returns the names that no other site can have: those in the configuration, and the machine's own.
func (s *Site) names() map[string]bool {
	names := map[string]bool{}
	for _, name := range s.Hosts {
		names[name] = true
	}
	names[strings.ToLower(s.Address.Host)] = true
	if host, err := os.Hostname(); err == nil {
		names[strings.ToLower(host)] = true
	}
	delete(names, "")
	return names
}

// known reports whether a Host header is an address, one of these names, or a name without a dot, which resolves only
// locally.
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
func (s *Site) healthz(w http.ResponseWriter, r *http.Request) {
	if s.status(w, r) != nil {
		fmt.Fprintln(w, "ok")
	}
}

// readyz says whether every program serves, and which do not.
func (s *Site) readyz(w http.ResponseWriter, r *http.Request) {
	st := s.status(w, r)
	if st == nil {
		return
	}
	if err := st.Ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// status returns nil if the supervisor does not answer, and says so to the client.
func (s *Site) status(w http.ResponseWriter, r *http.Request) *supervisor.Status {
	st, err := s.Status(r.Context())
	if err != nil {
		http.Error(w, "the supervisor does not answer: "+err.Error(), http.StatusServiceUnavailable)
		return nil
	}
	return st
}

// viewText is what the page shows, in JSON.
func (s *Site) viewText(ctx context.Context) ([]byte, error) {
	v, err := s.View(ctx)
	if err != nil {
		return nil, err
	}
	v.Token = s.TokenFile != ""
	return json.Marshal(v)
}

func (s *Site) viewOnce(w http.ResponseWriter, r *http.Request) {
	text, err := s.feed.latest(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(text) //nolint:errcheck // the client is gone
}

// history answers with the decided reloads of a program, newest first: more of them than the state has.
func (s *Site) history(w http.ResponseWriter, r *http.Request) {
	st := s.status(w, r)
	if st == nil {
		return
	}
	st, err := st.Only(r.FormValue("program"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	list := slices.DeleteFunc(st.Programs[0].Known(), func(r program.ReloadRecord) bool { return r.Outcome.Open() })
	slices.Reverse(list)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(append([]program.ReloadRecord{}, list...)) //nolint:errcheck // the client may be gone
}

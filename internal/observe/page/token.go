package page

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/output"
)

// The bounds of a token.
const (
	minToken = 16
	maxToken = 4 << 10
)

// wrongPause delays the answer to a wrong token, so that guessing is slow.
const wrongPause = 500 * time.Millisecond

// reloadTimeout is longer than reading a configuration may take.
const reloadTimeout = 75 * time.Second

// forHolder lets only the holder of the token ask for something. The token comes in a header that no other page can
// set, never in a cookie, so no other site can make a browser send it (CSRF).
func (s *Site) forHolder(answer func(w http.ResponseWriter, r *http.Request, holder string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.TokenFile == "" {
			http.Error(w, "this page is read-only: set http_token_file to change that", http.StatusForbidden)
			return
		}
		token, err := readToken(s.TokenFile)
		if err != nil {
			s.Log.Error("cannot use the page's token: the page is read-only until that is fixed", zap.Error(err))
			http.Error(w, "the token cannot be used: "+err.Error(), http.StatusInternalServerError)
			return
		}
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || !same(given, token) {
			s.feed.pause(r.Context(), wrongPause)
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "wrong token", http.StatusUnauthorized)
			return
		}
		answer(w, r, tokenHolder(r))
	}
}

// change answers a request to change something.
func (s *Site) change(w http.ResponseWriter, r *http.Request, holder string) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reloadTimeout)) //nolint:errcheck // it is a socket
	s.Change(w, r, holder)
}

// unlock tells a client whether it has the token.
func unlock(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(http.StatusNoContent) }

// shownLines is how many lines of output the page shows.
const shownLines = 40

// logs answers with the last lines that a program's workers wrote. They may hold secrets, so only the holder of the
// token gets them.
func (s *Site) logs(w http.ResponseWriter, r *http.Request, _ string) {
	log, err := s.Logs(r.Context(), r.FormValue("program"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	lines, _ := log.Last(shownLines)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(append([]output.LogLine{}, lines...)) //nolint:errcheck // the client may be gone
}

// tokenHolder says who asks for something with the token.
func tokenHolder(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return program.ByTokenHolder("the unix socket")
	}
	return program.ByTokenHolder(from.Addr().Unmap().String())
}

// same takes the same time whatever the difference.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// readToken reads the token at each use, so that it can be changed at any time.
func readToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("http_token_file: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	// The group may have access: people who may all reload share a file by a group.
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("http_token_file %s is not a regular file", path)
	}
	if info.Mode().Perm()&0o006 != 0 {
		return "", fmt.Errorf("http_token_file %s must not be readable or writable by others: chmod o= %[1]s", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken {
		return "", fmt.Errorf("http_token_file %s: the token has %d characters: use at least %d", path, len(token), minToken)
	}
	return token, nil
}

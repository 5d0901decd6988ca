package page

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
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

// reload lets the holder of the token reload. The token comes in a header that no other page can set, never in a cookie, so no
// other site can make a browser send it (CSRF).
func (s *Site) reload(w http.ResponseWriter, r *http.Request) {
	if s.TokenFile == "" {
		http.Error(w, "this page is read-only: set http_token_file to change that", http.StatusForbidden)
		return
	}
	token, err := readToken(s.TokenFile)
	if err != nil {
		s.Log.Error("cannot use the token: reloads from the page are off", zap.Error(err))
		http.Error(w, "the token cannot be read; the log says why", http.StatusInternalServerError)
		return
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || !same(given, token) {
		s.feed.pause(r.Context(), wrongPause)
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "wrong token", http.StatusUnauthorized)
		return
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reloadTimeout)) //nolint:errcheck // it is a socket
	s.Reload(w, r, holder(r))
}

// holder says who asks for something with the token.
func holder(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "token holder from the unix socket"
	}
	return "token holder from " + from.Addr().Unmap().String()
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
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	// The group may have access: people who may all reload share a file by a group.
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o006 != 0 {
		return "", fmt.Errorf("%s: is not a regular file, or others can read or write it: chmod o= %[1]s", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken {
		return "", fmt.Errorf("%s: the token has %d characters: use at least %d", path, len(token), minToken)
	}
	return token, nil
}

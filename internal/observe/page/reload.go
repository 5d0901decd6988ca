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

	"example.org/supervisord/internal/control"
)

// The bounds of a token.
const (
	minToken = 16
	maxToken = 4 << 10
)

// wrongPause is how long an answer to a wrong token takes, so that guessing is slow.
const wrongPause = 500 * time.Millisecond

// reloadTimeout is longer than a configuration may take to be read.
const reloadTimeout = 75 * time.Second

// reload replaces the workers of the programs in ?program=, or of all. The token comes in a header that no other page can set,
// and never in a cookie: nobody can make a browser send it (CSRF).
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	if s.TokenFile == "" {
		http.Error(w, "this page can only be read: set http_token_file to change that", http.StatusForbidden)
		return
	}
	token, err := readToken(s.TokenFile)
	if err != nil {
		s.Log.Error("nobody can reload from the page: cannot use the token", zap.Error(err))
		http.Error(w, "the token cannot be read; the log says why", http.StatusInternalServerError)
		return
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || !same(given, token) {
		s.pause(r.Context(), wrongPause)
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "wrong token", http.StatusUnauthorized)
		return
	}
	programs := r.URL.Query()["program"]
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reloadTimeout)) //nolint:errcheck // it is a socket
	accepted, err := control.Reload(r.Context(), s.Asker, control.ReloadBody{Programs: programs, Reason: "the page"}, holder(r))
	if err != nil {
		control.ProblemOf(err).Write(w)
		return
	}
	answer(w, http.StatusAccepted, accepted)
}

// holder is who asks for something with the token.
func holder(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "token holder from the unix socket"
	}
	return "token holder from " + from.Addr().Unmap().String()
}

// same takes the same time whatever is wrong.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// readToken reads the token anew, so that it can be changed at any time.
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
	// The group may have it: a token is for everybody who may reload, and a group is how such people share a file.
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

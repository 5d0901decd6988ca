package naive

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
)

func TestMain(m *testing.M) { lab.Main(m) }

// worker builds the naive worker once.
var worker = sync.OnceValues(func() (string, error) {
	path := filepath.Join(lab.Built.Dir, "naive")
	out, err := exec.Command("go", "build", "-C", lab.Root("examples"), "-o", path, "./measure/naive").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("cannot build the naive worker: %w\n%s", err, out)
	}
	return path, err
})

// naive is a program with the naive worker on an address, with more arguments and keys.
func naive(t *testing.T, address string, args ...string) string {
	t.Helper()
	path, err := worker()
	lab.Must(t, err)
	words := append([]string{path}, args...)
	return lab.WithHandover(fmt.Sprintf(`
[program.web]
command = ["%s"]
[program.web.ready]
method = "notify"
[[program.web.listen]]
name = "http"
address = %q
`, strings.Join(words, `", "`), address))
}

// storm is the usual one: 1,000 connections.
func storm(address string) lab.Storm {
	return lab.Storm{Clients: 1000, Requests: 100_000, Every: time.Second, Dial: load.Dial(address), Ask: load.Get("http://test/", nil)}
}

// blow reloads m by HUP under a storm, and fails if a worker had to be killed, died, or did not get ready.
func blow(m *lab.Supervisord, s lab.Storm) lab.Toll {
	m.T.Helper()
	toll := s.Blow(m.T, func() { m.Signal(syscall.SIGHUP) }, func() int { return m.Count(lab.Says(lab.GenerationServes)) - 1 })
	for _, sentence := range []string{lab.TrialFailed, lab.WorkerKilled, lab.WorkerDied} {
		m.Never(lab.Says(sentence))
	}
	return toll
}

// overTLS returns a dialer whose connections have finished their handshake, with a certificate that nobody has signed.
func overTLS(address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
	}
}

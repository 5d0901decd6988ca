package naive

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
)

func TestMain(m *testing.M) { lab.Main(m) }

// naive is a program with the naive worker on an address, with more arguments and keys.
func naive(t *testing.T, address string, args ...string) string {
	t.Helper()
	words := append([]string{lab.Build(t, "examples/measure/naive")}, args...)
	drain := "" // the default, also where nothing else runs beside 1,000 clients
	if !lab.Long() {
		drain = "\nsilence = \"20s\"" // a client that waits for a CPU for longer is taken for idle
	}
	return lab.WithHandover(fmt.Sprintf(`
[program.web]
command = ["%s"]
[program.web.ready]
method = "notify"
[program.web.drain]%s
[[program.web.listen]]
name = "http"
address = %q
`, strings.Join(words, `", "`), drain, address))
}

// storm is the usual one: 1,000 connections, and a few that are in the worker's hands for seconds.
func storm(address string) lab.Storm {
	dial := load.Dial(address)
	return lab.Storm{
		Clients:  lab.Clients{Count: 1000, Dial: dial, Ask: load.Get("http://test/", nil)},
		Requests: 100_000, Every: time.Second, Beside: beside(dial),
	}
}

// beside is a small share of a storm: what a worker that is told to stop too early would lose.
func beside(dial lab.Dialer) []lab.Clients {
	short, slow := load.Get("http://test/", nil), load.Get("http://test/slow?d=2s", nil)
	near, far := load.Parts(4, 300*time.Millisecond), load.Parts(3, 2*time.Second)
	return []lab.Clients{
		{Name: "parts 0.3 s apart", Count: 4, Dial: dial, Ask: near},
		{Name: "parts 0.3 s apart on a keep-alive connection", Count: 4, Dial: dial, Ask: load.InTurn(short, short, near)},
		{Name: "parts 2 s apart", Count: 4, Dial: dial, Ask: far},
		{Name: "parts 2 s apart on a keep-alive connection", Count: 4, Dial: dial, Ask: load.InTurn(short, short, far)},
		{Name: "slow first answer", Count: 4, Dial: dial, Ask: slow},
		{Name: "request 1 s after the connect", Count: 4, Dial: dial, Ask: short, RoundTrip: time.Second},
	}
}

// blow reloads m by HUP under a storm, and fails if a worker had to be killed, died, or did not get ready.
func blow(m *lab.Supervisord, s lab.Storm) lab.Toll {
	m.T.Helper()
	toll := s.Blow(m.T, func() { m.Signal(syscall.SIGHUP) },
		func() int { return m.Count(lab.Says(lab.GenerationServes)) - 1 })
	for _, sentence := range []string{lab.TrialFailed, lab.WorkerKilled, lab.WorkerDied} {
		m.Never(lab.Says(sentence))
	}
	return toll
}

// lateTLS returns a dialer whose connections shake hands with their first request.
func lateTLS(address string) lab.Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		c, err := load.Dial(address)(ctx)
		if err != nil {
			return nil, err
		}
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true}), nil
	}
}

// overTLS returns a dialer whose connections have finished their handshake, with a certificate that nobody has signed.
func overTLS(address string) lab.Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		return (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

const publishedAB = "`ab -r -n 100000 -c 1000` against start_server with three Go graceful libraries, a HUP each second: 0, 0 and 22 failed; " +
	"7,750 to 8,020 requests a second on a c4.large (najeira, Zenn, 2020)."

// hupped is something that a HUP redeploys.
type hupped interface {
	hup() error
	stop()
}

// contender is one way to serve under ab.
type contender struct {
	supervisor, worker string
	command            []string
	start              func(ctx context.Context, b *bench, address string, command []string) (hupped, error)
}

func contenders(b *bench) []contender {
	supervised := func(ctx context.Context, b *bench, address string, command []string) (hupped, error) {
		m, err := startMaster(ctx, b.bin.Supervisord, b.dir, web(command, "1", address))
		return m, err
	}
	perl := func(ctx context.Context, _ *bench, address string, command []string) (hupped, error) {
		s, err := startStarter(ctx, address, command...)
		if s == nil {
			return nil, err
		}
		return s, err
	}
	hello, shutdown := []string{b.bin.Hello}, []string{b.bin.Self, shutdownRole}
	return []contender{
		{"supervisord", "examples/hello (worker/graceful)", hello, supervised},
		{"supervisord", "`http.Server.Shutdown`", shutdown, supervised},
		{"start_server", "examples/hello (worker/graceful)", hello, perl},
		{"start_server", "`http.Server.Shutdown`", shutdown, perl},
	}
}

func runAB(ctx context.Context, b *bench, s *section) error {
	if _, err := exec.LookPath("ab"); err != nil {
		s.say("Left out: `ab` is not installed (Debian: apache2-utils).")
		return nil
	}
	var rows [][]string
	var ours, theirs int
	for _, c := range contenders(b) {
		for _, keep := range []bool{false, true} {
			r, err := c.measure(ctx, b, keep)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.supervisor, c.worker, err)
			}
			rows = append(rows, r.row(c, keep))
			switch {
			case r == nil:
			case c.worker == "`http.Server.Shutdown`":
				theirs += r.failed
			case c.supervisor == "supervisord":
				ours += r.failed
			}
		}
	}
	s.table([]string{"supervisor", "worker", "ab", "HUPs", "requests", "failed", "requests/s"}, rows)
	blame := ""
	if theirs > 0 {
		blame = fmt.Sprintf(" With plain Shutdown %s failed under the two supervisors together: the socket is handed over without a loss, and the worker's stop loses what it has accepted.", count(theirs))
	}
	s.say("**It means:** %s%s "+
		"`-k` is ab with kept connections (HTTP/1.0 with keep-alive), one worker serves at a time; start_server takes a worker "+
		"for ready when it has lived for a second.", verdict(ours, "supervisord with worker/graceful"), blame)
	return nil
}

// verdict is a sentence about what must be none.
func verdict(failed int, who string) string {
	if failed == 0 {
		return fmt.Sprintf("%s lost nothing.", who)
	}
	return fmt.Sprintf("**%s lost %s, which is a defect.**", who, count(failed))
}

// abResult is what ab says.
type abResult struct {
	hups, requests, failed int
	took                   time.Duration
}

func (r *abResult) row(c contender, keep bool) []string {
	flags := "-r"
	if keep {
		flags = "-r -k"
	}
	if r == nil {
		return []string{c.supervisor, c.worker, flags, "", "", "left out: not installed (Debian: libserver-starter-perl)", ""}
	}
	return []string{c.supervisor, c.worker, flags, fmt.Sprint(r.hups), count(r.requests), count(r.failed), fmt.Sprintf("%.0f", float64(r.requests)/r.took.Seconds())}
}

// measure runs ab, and again until two HUPs have come; nil where the supervisor is not installed.
func (c contender) measure(ctx context.Context, b *bench, keep bool) (*abResult, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	supervisor, err := c.start(ctx, b, address, c.command)
	if err != nil || supervisor == nil {
		return nil, err
	}
	defer supervisor.stop()
	hups, cancel := context.WithCancel(ctx)
	sent, ended := 0, make(chan error, 1)
	go func() {
		ended <- each(hups, b.size.hups, func() error { sent++; return supervisor.hup() })
	}()
	all := &abResult{}
	for began := time.Now(); err == nil && (all.requests == 0 || time.Since(began) < 5*b.size.hups/2); {
		err = all.bring(ctx, b.size, "http://"+address+"/", keep)
	}
	cancel()
	err = errors.Join(err, <-ended)
	all.hups = sent
	return all, err
}

func (r *abResult) bring(ctx context.Context, size sizes, url string, keep bool) error {
	args := []string{"-q", "-r", "-s", "30", "-n", strconv.Itoa(size.abRequests), "-c", strconv.Itoa(size.abClients)}
	if keep {
		args = append(args, "-k")
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "ab", append(args, url)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ab: %w: %s", err, out.String())
	}
	complete, known := abCount(out.Bytes(), "Complete requests")
	failed, known2 := abCount(out.Bytes(), "Failed requests")
	if !known || !known2 {
		return fmt.Errorf("ab does not say what it did: %s", out.String())
	}
	other, _ := abCount(out.Bytes(), "Non-2xx responses") // only said when there are any
	r.requests += size.abRequests
	r.failed += failed + other + size.abRequests - complete
	r.took += time.Since(began)
	return nil
}

// abCount finds a count in what ab prints.
func abCount(text []byte, name string) (int, bool) {
	found := regexp.MustCompile(name + `:\s+(\d+)`).FindSubmatch(text)
	if found == nil {
		return 0, false
	}
	n, err := strconv.Atoi(string(found[1]))
	return n, err == nil
}

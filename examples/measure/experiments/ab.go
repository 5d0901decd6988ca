package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/kit"
)

const publishedAB = "`ab -r -n 100000 -c 1000` against start_server with three Go graceful libraries, a HUP each " +
	"second: 0, 0 and 22 failed; " +
	"7,750 to 8,020 requests a second on a c4.large (najeira, Zenn, 2020)."

type abSize struct {
	requests, clients int
	every             time.Duration // between two HUPs
}

// contender is one way to serve under ab.
type contender struct {
	supervisor, worker string
	command            []string
	listener           string // keys of supervisord's listener
}

const (
	shutdownOnly = "`http.Server.Shutdown`"
	startServer  = "start_server"
	shares       = "supervisord, one shared socket"
	steers       = "supervisord, steered"
)

func (r *rig) contenders() (all []contender) {
	for _, supervisor := range []struct{ name, listener string }{{steers, steered}, {shares, shared}, {startServer, ""}} {
		all = append(all, contender{supervisor.name, "examples/hello (worker/graceful)", r.command("hello"),
			supervisor.listener},
			contender{supervisor.name, shutdownOnly, r.command("naive"), supervisor.listener})
	}
	return all
}

func runAB(ctx context.Context, r *rig, c *chapter) error {
	if !kit.HasAB() {
		c.say("Left out: `ab` is not installed (Debian: apache2-utils).")
		return nil
	}
	var rows [][]string
	var ours, theirs int
	for _, way := range r.contenders() {
		for _, keep := range []bool{false, true} {
			row, lost, err := r.underAB(ctx, way, keep)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", way.supervisor, way.worker, err)
			}
			rows = append(rows, row)
			switch {
			case way.supervisor == steers && !keep, way.worker != shutdownOnly && way.supervisor != startServer:
				ours += lost
			case way.worker == shutdownOnly:
				theirs += lost
			}
		}
	}
	c.table([]string{"supervisor", "worker", "ab", "HUPs", "requests", "failed", "requests/s"}, rows)
	blame := ""
	if theirs > 0 {
		blame = fmt.Sprintf(" With plain Shutdown %s requests failed where the generations share a socket, or on "+
			"keep-alive connections that the worker closed "+
			"under a request: the socket is handed over without a loss, but the worker loses requests that it has accepted "+
			"when it stops.", count(theirs))
	}
	c.say("**It means:** %s%s With `-k`, ab keeps its connections (HTTP/1.0 with keep-alive). One worker serves at a "+
		"time. start_server considers "+
		"a worker ready after a second.", verdict(ours,
		"supervisord with worker/graceful, or with plain Shutdown on new connections when it steers,"), blame)
	return nil
}

// underAB runs ab while HUPs come, and again until two have come. It returns a row of the table and the lost requests.
func (r *rig) underAB(ctx context.Context, way contender, keep bool) (row []string, lost int, err error) {
	row = []string{way.supervisor, way.worker, "-r"}
	if keep {
		row[2] = "-r -k"
	}
	address := kit.FreeAddress()
	hup, stop, err := r.contend(ctx, way, address)
	if err != nil {
		return nil, 0, err
	}
	if hup == nil {
		return append(row, "", "", "left out: not installed (Debian: libserver-starter-perl)", ""), 0, nil
	}
	defer stop(5 * time.Second)
	var t kit.Totals
	sent, every := 0, r.ab.every
	err = kit.During(ctx, every, func() error { sent++; return hup() }, func() (err error) {
		for began := time.Now(); err == nil && (t.Requests == 0 || time.Since(began) < 5*every/2); {
			err = t.AB(ctx, "http://"+address+"/", r.ab.clients, r.ab.requests, keep)
		}
		return err
	})
	return append(row, fmt.Sprint(sent), count(t.Requests), count(t.Failed), t.PerSecond()), t.Failed, err
}

// contend starts the supervisor of a contender; hup is nil if it is not installed. start_server considers a worker
// ready after a second: that is its default.
func (r *rig) contend(ctx context.Context, way contender, address string) (hup func() error, stop func(time.Duration),
	err error) {
	if way.supervisor != startServer {
		table := web("http", address, "1", way.command...)
		table.Listen[0].More = way.listener
		s, err := r.supervise(ctx, table)
		if err != nil {
			return nil, nil, err
		}
		return s.HUP, s.Stop, nil
	}
	path, err := exec.LookPath("start_server")
	if err != nil {
		return nil, nil, nil //nolint:nilerr // the report says that it is left out
	}
	child, err := serveAlone(ctx, address, append([]string{path, "--port", address, "--"}, way.command...)...)
	if err != nil {
		return nil, nil, err
	}
	return func() error { return child.Cmd.Process.Signal(unix.SIGHUP) }, child.Stop, nil
}

package graceful_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
)

// The load of the tests. The flags set a larger one for measurements.
var (
	loadRequests    = flag.Int("load.requests", defaultRequests, "requests of a load test")
	loadConnections = flag.Int("load.connections", 200, "connections at once of a load test")
	loadWorker      = flag.String("load.worker", "http", "worker of a load test: http, or shutdown for what most do")
	loadPause       = flag.Duration("load.pause", 0, "average pause of a client between two requests")
	loadSwap        = flag.Duration("load.swap", 200*time.Millisecond, "time between two swaps of a load test")
)

func TestLoadNewConnections(t *testing.T) { underLoad(t, 0) }

func TestLoadKeepAlive(t *testing.T) { underLoad(t, *loadConnections) }

// underLoad replaces workers under a load with this many keep-alive connections.
func underLoad(t *testing.T, keep int) {
	m := newMaster(t)
	s := &load.Driver{Dial: load.Dial(m.addr), Ask: load.Get("http://test/", only200), Keep: keep}
	var seen load.Collector
	done := make(chan struct{})
	var took time.Duration
	n := m.swaps(*loadWorker, *loadSwap, func() {
		defer close(done)
		l := load.New(seen.Add)
		l.Loop(s, *loadConnections, *loadRequests, func() time.Duration { return rand.N(2**loadPause + 1) })
		l.Wait()
		took = l.Now()
	}, done)
	all := seen.Attempts()
	lost, kinds := all.Lost()
	reused := len(all) - s.Dials()
	t.Logf("%d requests, %d connections, %d swaps in %v (%.0f/s), %d on a used connection, slowest %v: lost %v", len(all),
		*loadConnections, n, took.Round(time.Millisecond), float64(len(all))/took.Seconds(), reused, all.Latencies().Quantile(
			1), kinds)
	for _, a := range all {
		if a.Lost != nil {
			t.Errorf("%d were lost; one, on a used connection %v: %s", lost, a.Lost.Reused, a.Lost.Text)
			break
		}
	}
	if n == 0 {
		t.Error("no swap took place")
	}
	if keep > 0 && reused < *loadRequests/4 {
		t.Errorf("only %d requests of %d came on a used connection", reused, *loadRequests)
	}
}

func only200(answer *http.Response, _ []byte) error {
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// request requests a path on an open connection; again reports whether the connection can be reused.
func request(c *load.Wire, path string, keepAlive bool) (again bool, err error) {
	closes, err := load.Get("http://test"+path, only200)(c, !keepAlive)
	return err == nil && !closes, err
}

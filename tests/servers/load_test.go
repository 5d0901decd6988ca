package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
)

const (
	// roundTrip is the simulated distance of the clients, as in `supervisord prove`.
	roundTrip = 20 * time.Millisecond
	// A client waits for a random time in this range between two requests.
	leastPause, mostPause = 10 * time.Millisecond, 60 * time.Millisecond
)

// get returns a GET by HTTP/1.1; the answer must be a 200 that contains want.
func get(path, want string) load.Ask {
	return load.Get("http://test"+path, func(answer *http.Response, body []byte) error {
		switch {
		case answer.StatusCode != http.StatusOK:
			return errors.New(answer.Status)
		case !strings.Contains(string(body), want):
			return fmt.Errorf("answer without %q: %.80q", want, body)
		}
		return nil
	})
}

// clients do the same thing side by side.
type clients struct {
	kind    string // for the report: "new", "kept", "slow"
	count   int
	request func(since time.Time) load.Attempt
}

// asking returns clients of an address, with a new connection for each request or with keep-alive connections.
func asking(kind string, count, keep int, address string, a load.Ask) clients {
	s := &load.Driver{Dial: load.Dial(address), Ask: a, Keep: keep, Timeout: lab.AnswerTimeout, RoundTrip: roundTrip}
	return clients{kind, count, s.Send}
}

// fresh returns clients with a new connection for each request.
func fresh(address string, a load.Ask) clients { return asking("new", 12, 0, address, a) }

// slow returns clients with long requests, so that some are in flight whenever a server is told to stop.
func slow(address string, a load.Ask) clients { return asking("slow", 6, 0, address, a) }

// pressure is the load on a site.
type pressure struct {
	site  *site
	kinds []string
	loads []*load.Load
	seen  []*load.Collector
}

// press puts load on the site until the end of the test at most.
func (s *site) press(all ...clients) *pressure {
	p := &pressure{site: s}
	for _, c := range all {
		i := slices.Index(p.kinds, c.kind)
		if i < 0 {
			i = len(p.kinds)
			seen := &load.Collector{}
			p.kinds, p.seen, p.loads = append(p.kinds, c.kind), append(p.seen, seen), append(p.loads, load.New(seen.Add))
		}
		p.loads[i].Repeat(c.request, c.count, 0, func() time.Duration { return leastPause + rand.N(mostPause-leastPause) })
	}
	s.T.Cleanup(p.end)
	return p
}

// end ends the load; requests in flight are answered first.
func (p *pressure) end() {
	for _, l := range p.loads {
		l.Stop()
	}
}

// lossless fails if a request was lost, or if there was hardly any load.
func (p *pressure) lossless() {
	p.site.T.Helper()
	p.lossy(nil)
}

// lossy is lossless for a server that loses requests when it stops, whatever supervisord does: it may lose this many of
// each named kind per redeploy, and none of another kind. It logs the losses for docs/servers.md.
func (p *pressure) lossy(perRedeploy map[string]float64) {
	p.site.T.Helper()
	p.end()
	sent, lost := 0, 0
	var parts []string
	for i, kind := range p.kinds {
		all := p.seen[i].Attempts()
		n, kinds := all.Lost()
		sent, lost = sent+len(all), lost+n
		part := fmt.Sprintf("%s: %d of %d", kind, n, len(all))
		if n > 0 {
			part += fmt.Sprint(" ", kinds)
		}
		parts = append(parts, part)
		if len(all) < p.site.redeploys {
			p.site.T.Errorf("only %d requests of the kind %s: too little load", len(all), kind)
		}
		if bound := perRedeploy[kind] * float64(p.site.redeploys); float64(n) > bound && !lab.Shared() {
			p.site.T.Errorf("%s: %d of %d requests were lost, at most %v are allowed: %v", kind, n, len(all), bound, kinds)
		}
	}
	p.site.T.Logf("%s: lost %d of %d requests in %d redeploys, %.1f s (%s)",
		p.site.name, lost, sent, p.site.redeploys, p.loads[0].Now().Seconds(), strings.Join(parts, "; "))
}

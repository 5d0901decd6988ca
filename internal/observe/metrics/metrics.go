// Package metrics is what Prometheus reads. Counters are fed by the supervisor's updates; everything else is asked for when somebody
// scrapes, and only then.
package metrics

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// The buckets of the histograms, in seconds.
var (
	reloadBuckets = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	drainBuckets  = []float64{.05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}
)

// Status asks the supervisor how things are.
type Status func(context.Context) (*supervisor.Status, error)

// scrapes is how many scrapes may be answered at once.
const scrapes = 4

// Metrics counts what happens.
type Metrics struct {
	version string
	status  Status
	places  chan struct{} // one for each scrape

	mu     sync.Mutex
	counts map[string]*counts // by program
}

// counts is what is counted for one program.
type counts struct {
	reloads         map[program.Outcome]int
	restarts, kills int
	reload, drain   *histogram
}

// New returns metrics that have counted nothing.
func New(version string, status Status) *Metrics {
	return &Metrics{version: version, status: status, places: make(chan struct{}, scrapes), counts: map[string]*counts{}}
}

// of returns the counts of a program, all of them 0 at first: an increase from nothing would not be seen as one. mu is held.
func (m *Metrics) of(name string) *counts {
	c := m.counts[name]
	if c == nil {
		c = &counts{reloads: map[program.Outcome]int{}, reload: newHistogram(reloadBuckets), drain: newHistogram(drainBuckets)}
		m.counts[name] = c
	}
	return c
}

// See counts an update.
func (m *Metrics) See(u supervisor.Update) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of(u.Program)
	if u.Decides() {
		c.reloads[u.Reload.Outcome]++
		if u.Reload.Outcome == program.Serves {
			c.reload.observe(u.Reload.Took.Seconds())
		}
	}
	switch u.Kind {
	case program.GenerationGone:
		c.drain.observe(u.Took.Seconds())
	case program.SlotRetry:
		c.restarts++
	case program.WorkerKilled:
		c.kills++
	}
}

// ServeHTTP answers a scrape. If the supervisor does not answer, the scrape fails: no figures are better than old ones.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case m.places <- struct{}{}:
		defer func() { <-m.places }()
	default:
		http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
		return
	}
	st, err := m.status(r.Context())
	if err != nil {
		http.Error(w, "the supervisor does not answer: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Write(m.text(st)) //nolint:errcheck // the client has gone
}

func (m *Metrics) text(st *supervisor.Status) []byte {
	t := new(text)
	m.counters(t, st)
	programs(t, st)
	queues(t, st)
	t.family("supervisord_build_info", "gauge", "The version of supervisord that runs; always 1.")
	t.sample("supervisord_build_info", 1, "version", m.version)
	t.family("supervisord_image_start_time_seconds", "gauge", "When this image of supervisord began, since the epoch; an upgrade in place begins a new one.")
	t.sample("supervisord_image_start_time_seconds", float64(st.Started.UnixMilli())/1000)
	process(t)
	return t.Bytes()
}

// counters writes what was counted, of the programs that there are; those that are gone are forgotten.
func (m *Metrics) counters(t *text, st *supervisor.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[string]*counts{}
	for _, p := range st.Programs {
		there[p.Name] = m.of(p.Name)
	}
	m.counts = there
	names := slices.Sorted(maps.Keys(there))
	each := func(name, kind, help string, write func(program string, c *counts)) {
		t.family(name, kind, help)
		for _, program := range names {
			write(program, there[program])
		}
	}
	each("supervisord_reloads_total", "counter", "Reloads that were decided, first starts included, by their outcome.", func(name string, c *counts) {
		for _, o := range program.ReloadOutcomes() {
			t.sample("supervisord_reloads_total", float64(c.reloads[o]), "program", name, "outcome", string(o))
		}
	})
	each("supervisord_reload_duration_seconds", "histogram", "From the beginning of a reload until the new generation serves.", func(program string, c *counts) {
		c.reload.write(t, "supervisord_reload_duration_seconds", "program", program)
	})
	each("supervisord_drain_duration_seconds", "histogram", "From the moment when a generation is told to go until it is gone.", func(program string, c *counts) {
		c.drain.write(t, "supervisord_drain_duration_seconds", "program", program)
	})
	each("supervisord_worker_restarts_total", "counter", "Workers of the serving generation that ended before their time and are started again.", func(program string, c *counts) {
		t.sample("supervisord_worker_restarts_total", float64(c.restarts), "program", program)
	})
	each("supervisord_worker_kills_total", "counter", "Workers that did not go in the time that they were given, and were killed.", func(program string, c *counts) {
		t.sample("supervisord_worker_kills_total", float64(c.kills), "program", program)
	})
}

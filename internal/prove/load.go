package prove

import (
	"net/http"
	"sync"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// sample is one request.
type sample struct {
	at      time.Duration // when it was sent, since the proof began
	latency time.Duration
	loss    *loss // nil: it was answered
}

// round is how long a kept connection is idle between two requests, about: far less than any server's idle timeout.
const round = 200 * time.Millisecond

// mostKept bounds the connections that are kept.
const mostKept = 200

// roundTripper is a client as the load needs it.
type roundTripper interface {
	http.RoundTripper
	note(seq uint64) (note, bool)
	abandon()
	close()
}

// attack is one of vegeta's attackers and its client.
type attack struct {
	attacker *vegeta.Attacker
	client   roundTripper
}

// load is what is put on the target. It owns its goroutines: samples is closed when none is left.
type load struct {
	attacks []*attack
	samples chan sample
	running sync.WaitGroup
}

// newLoad begins to hit t. Where HTTP is spoken half of the requests come on new connections.
func newLoad(t *target, o Options, began time.Time) *load {
	l := &load{samples: make(chan sample, 1024)}
	half := o.Rate / 2
	if t.bare {
		l.add(t, &bare{wire: newWire(t, o), patient: t.patient}, o.Rate, began)
	} else {
		kept := o.Rate - half
		connections := min(mostKept, 1+int(float64(kept)*round.Seconds()))
		l.add(t, &client{wire: newWire(t, o), keep: connections}, kept, began)
		l.add(t, &client{wire: newWire(t, o)}, half, began)
	}
	go func() {
		l.running.Wait()
		close(l.samples)
	}()
	return l
}

// add starts an attacker that goes on until stop.
func (l *load) add(t *target, c roundTripper, rate int, began time.Time) {
	once := &http.Client{Transport: c, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	a := &attack{vegeta.NewAttacker(vegeta.Client(once)), c}
	l.attacks = append(l.attacks, a)
	targeter := vegeta.NewStaticTargeter(vegeta.Target{Method: http.MethodGet, URL: t.url.String()})
	results := a.attacker.Attack(targeter, vegeta.Rate{Freq: rate, Per: time.Second}, 0, "")
	l.running.Go(func() {
		defer c.close()
		for r := range results {
			if s, ok := a.sample(r, began); ok {
				l.samples <- s
			}
		}
	})
}

// sample translates a result; what the end of the proof cut is none.
func (a *attack) sample(r *vegeta.Result, began time.Time) (sample, bool) {
	n, known := a.client.note(r.Seq)
	return sample{r.Timestamp.Sub(began) + n.paused, r.Latency - n.paused, n.loss}, known
}

// stop sends nothing more; what is under way may end.
func (l *load) stop() {
	for _, a := range l.attacks {
		a.attacker.Stop()
	}
}

// abandon stops, and cuts what is under way.
func (l *load) abandon() {
	l.stop()
	for _, a := range l.attacks {
		a.client.abandon()
	}
}

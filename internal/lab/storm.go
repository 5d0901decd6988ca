package lab

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
)

var (
	long     = flag.Bool("long", false, "send as many requests as the documentation quotes, instead of a fraction")
	handover = flag.String("handover", "",
		"set this `handover` for every listener; \"share\" reports losses and does not fail because of them")
)

// Long reports whether the tests run with -long, in their long forms.
func Long() bool { return *long }

// Shared reports whether the tests run with -handover share, to measure what steering saves.
func Shared() bool { return *handover == "share" }

// WithHandover returns a configuration whose listeners have the handover of the flag -handover.
func WithHandover(config string) string {
	if *handover == "" {
		return config
	}
	var out strings.Builder
	for line := range strings.Lines(config) {
		out.WriteString(line)
		if strings.HasPrefix(line, "[[program.") && strings.Contains(line, ".listen]]") {
			fmt.Fprintf(&out, "handover = %q\n", *handover)
		}
	}
	return out.String()
}

// Clients send one kind of request, each the next one when the last was answered, on a new connection each time.
type Clients struct {
	Name      string // for the report
	Count     int
	RoundTrip time.Duration // between connect and request: see load.Driver
	Dial      func(context.Context) (net.Conn, error)
	Ask       load.Ask
}

// Storm is a load of new connections during reloads. Its own clients set its length.
type Storm struct {
	Clients
	Beside   []Clients     // a few more, of other kinds
	Requests int           // with -long; otherwise a twentieth, and 10,000 at most
	Every    time.Duration // between two reloads
	Reloads  int           // at least so many, with -long; otherwise half of them; 0: 5
}

// Toll is what a storm came to.
type Toll struct {
	Requests, Lost, Asked, Reloads int // those of all clients
	Took                           time.Duration
	Kinds                          []Tally // of Storm.Beside, in its order
	Losses                         []LostOne
}

// Tally is what became of the requests of some clients.
type Tally struct {
	Name           string
	Requests, Lost int
}

// LostOne is one lost request, for the search for its cause.
type LostOne struct {
	Sent, Ended time.Time
	Clients     string // their name
	Kind        load.LossKind
	Text        string
}

// String is "2 of 20,000 lost (reset 2), 9 reloads asked for, 9 made, 4,012/s; parts 0 of 12".
func (o Toll) String() string {
	kinds := map[load.LossKind]int{}
	for _, l := range o.Losses {
		kinds[l.Kind]++
	}
	var parts []string
	for _, k := range slices.SortedFunc(maps.Keys(kinds),
		func(a, b load.LossKind) int { return cmp.Compare(kinds[b], kinds[a]) }) {
		parts = append(parts, fmt.Sprintf("%s %d", k, kinds[k]))
	}
	why := ""
	if len(parts) > 0 {
		why = " (" + strings.Join(parts, ", ") + ")"
	}
	text := fmt.Sprintf("%d of %d lost%s, %d reloads asked for, %d made, %.0f/s", o.Lost, o.Requests, why, o.Asked,
		o.Reloads,
		float64(o.Requests)/o.Took.Seconds())
	for _, k := range o.Kinds {
		text += fmt.Sprintf("; %s %d of %d", k.Name, k.Lost, k.Requests)
	}
	return text
}

// Blow puts the load on and calls reload in a steady rhythm until there were enough requests and enough reloads, as
// counted by reloads.
func (s Storm) Blow(t testing.TB, reload func(), reloads func() int) Toll {
	t.Helper()
	want, wanted := s.Requests, cmp.Or(s.Reloads, 5)
	if !*long {
		want, wanted = min(want/20, 10_000), (wanted+1)/2
	}
	var sent atomic.Int64
	seen := make([]load.Collector, 1+len(s.Beside))
	began := time.Now()
	loads := []*load.Load{s.press(func(a load.Attempt) { sent.Add(1); seen[0].Add(a) })}
	for i, c := range s.Beside {
		loads = append(loads, c.press(seen[1+i].Add))
	}
	stop := sync.OnceFunc(func() { stopAll(loads) })
	defer stop()
	before, asked := reloads(), 0
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	deadline := began.Add(s.patience(want))
	for int(sent.Load()) < want || reloads()-before < wanted {
		if <-tick.C; time.Now().After(deadline) {
			t.Errorf("after %s there were only %d of %d requests and %d of %d reloads", time.Since(began).Round(time.Second),
				sent.Load(), want, reloads()-before, wanted)
			break
		}
		reload()
		asked++
	}
	stop()
	toll := Toll{Asked: asked, Reloads: reloads() - before, Took: time.Since(began)}
	toll.add(began, s.Name, seen[0].Attempts())
	for i, c := range s.Beside {
		toll.Kinds = append(toll.Kinds, toll.add(began, c.Name, seen[1+i].Attempts()))
	}
	return toll
}

// press begins the load of these clients.
func (c Clients) press(each func(load.Attempt)) *load.Load {
	l := load.New(each)
	l.Loop(&load.Driver{Dial: c.Dial, Ask: c.Ask, Timeout: AnswerTimeout, RoundTrip: c.RoundTrip}, c.Count, 0, nil)
	return l
}

// stopAll stops the loads side by side: some answers take seconds.
func stopAll(loads []*load.Load) {
	var stopping sync.WaitGroup
	for _, l := range loads {
		stopping.Go(l.Stop)
	}
	stopping.Wait()
}

// add adds the requests of some clients.
func (o *Toll) add(began time.Time, name string, all load.Attempts) Tally {
	lost, _ := all.Lost()
	o.Requests, o.Lost = o.Requests+len(all), o.Lost+lost
	for _, a := range all {
		if a.Lost != nil {
			o.Losses = append(o.Losses, LostOne{began.Add(a.At), began.Add(a.End()), name, a.Lost.Kind, a.Lost.Text})
		}
	}
	return Tally{name, len(all), lost}
}

// patience is how long a storm may take: even a busy machine answers 50 requests a second, or shakes hands for 20.
func (s Storm) patience(requests int) time.Duration {
	return 3*time.Minute + time.Duration(requests)*time.Second/50
}

// Lossless logs the toll, and fails if a request was lost, unless sockets are shared (see Shared). Then it shows what
// log says about the time of the first losses.
func (o Toll) Lossless(t testing.TB, what string, log *Transcript) {
	t.Helper()
	t.Logf("%s: %s", what, o)
	for _, k := range o.Kinds {
		if k.Requests == 0 {
			t.Errorf("%s: no request of the kind %q", what, k.Name)
		}
	}
	if o.Lost == 0 || Shared() {
		return
	}
	t.Errorf("%s: %d requests were lost, want 0", what, o.Lost)
	first := slices.SortedFunc(slices.Values(o.Losses), func(a, b LostOne) int { return a.Ended.Compare(b.Ended) })
	for _, l := range first[:min(len(first), 20)] {
		t.Logf("%s sent %s, lost %s: %s: %s", cmp.Or(l.Clients, "request"), l.Sent.UTC().Format("15:04:05.000000"),
			l.Ended.UTC().Format("15:04:05.000000"), l.Kind, l.Text)
	}
	lines, _ := log.All()
	for _, l := range lines {
		if l.Time.After(first[0].Sent.Add(-time.Second)) && l.Time.Before(first[0].Ended.Add(time.Second)) {
			t.Log(l.Short())
		}
	}
}

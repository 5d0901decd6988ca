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
	"sync/atomic"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/load"
)

var (
	long     = flag.Bool("long", false, "send as many requests as the documentation quotes, instead of a fraction")
	handover = flag.String("handover", "", "set this `handover` for every listener; \"share\" reports losses and does not fail because of them")
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

// Storm is a load of new connections, each with one request, during reloads.
type Storm struct {
	Clients   int
	Requests  int // with -long; otherwise a tenth, but at least Least
	Least     int
	Every     time.Duration // between two reloads
	Reloads   int           // at least so many; 0: 5
	RoundTrip time.Duration // see load.Sender
	Dial      func(context.Context) (net.Conn, error)
	Ask       load.Ask
}

// Toll is what a storm came to.
type Toll struct {
	Requests, Lost, Asked, Reloads int
	Took                           time.Duration
	Losses                         []Loss
}

// Loss is one lost request, for the search for its cause.
type Loss struct {
	Sent, Ended time.Time
	Kind        load.LossKind
	Text        string
}

// String is "2 of 20,000 lost (reset 2), 9 reloads, 4,012/s".
func (o Toll) String() string {
	kinds := map[load.LossKind]int{}
	for _, l := range o.Losses {
		kinds[l.Kind]++
	}
	var parts []string
	for _, k := range slices.SortedFunc(maps.Keys(kinds), func(a, b load.LossKind) int { return cmp.Compare(kinds[b], kinds[a]) }) {
		parts = append(parts, fmt.Sprintf("%s %d", k, kinds[k]))
	}
	why := ""
	if len(parts) > 0 {
		why = " (" + strings.Join(parts, ", ") + ")"
	}
	return fmt.Sprintf("%d of %d lost%s, %d reloads asked for, %d made, %.0f/s", o.Lost, o.Requests, why, o.Asked, o.Reloads, float64(o.Requests)/o.Took.Seconds())
}

// Blow puts the load on and calls reload in a steady rhythm until there were enough requests and enough reloads, as counted by reloads.
func (s Storm) Blow(t testing.TB, reload func(), reloads func() int) Toll {
	t.Helper()
	want := s.Requests
	if !*long {
		want = max(s.Least, want/10)
	}
	var sent atomic.Int64
	var seen load.Collector
	began := time.Now()
	l := load.New(func(a load.Attempt) { sent.Add(1); seen.Add(a) })
	sender := &load.Sender{Dial: s.Dial, Ask: s.Ask, Timeout: AnswerTimeout, RoundTrip: s.RoundTrip}
	before, asked := reloads(), 0
	l.Loop(sender, s.Clients, 0, nil)
	defer l.Stop()
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	deadline := began.Add(s.patience(want))
	for int(sent.Load()) < want || reloads()-before < cmp.Or(s.Reloads, 5) {
		if <-tick.C; time.Now().After(deadline) {
			t.Errorf("after %s there were only %d of %d requests and %d of %d reloads", time.Since(began).Round(time.Second),
				sent.Load(), want, reloads()-before, cmp.Or(s.Reloads, 5))
			break
		}
		reload()
		asked++
	}
	l.Stop()
	all := seen.Attempts()
	toll := Toll{Requests: len(all), Asked: asked, Reloads: reloads() - before, Took: time.Since(began)}
	for _, a := range all {
		if a.Lost != nil {
			toll.Lost++
			toll.Losses = append(toll.Losses, Loss{began.Add(a.At), began.Add(a.End()), a.Lost.Kind, a.Lost.Text})
		}
	}
	return toll
}

// patience is how long a storm may take: even a busy machine answers 100 requests a second.
func (s Storm) patience(requests int) time.Duration {
	return time.Minute + time.Duration(requests)*time.Second/100
}

// Lossless logs the toll, and fails if a request was lost, unless sockets are shared (see Shared). Then it shows what log says about the
// time of the first losses.
func (o Toll) Lossless(t testing.TB, what string, log *Transcript) {
	t.Helper()
	t.Logf("%s: %s", what, o)
	if o.Lost == 0 || Shared() {
		return
	}
	t.Errorf("%s: %d requests were lost, want 0", what, o.Lost)
	first := slices.SortedFunc(slices.Values(o.Losses), func(a, b Loss) int { return a.Ended.Compare(b.Ended) })
	for _, l := range first[:min(len(first), 20)] {
		t.Logf("sent %s, lost %s: %s: %s", l.Sent.UTC().Format("15:04:05.000000"), l.Ended.UTC().Format("15:04:05.000000"), l.Kind, l.Text)
	}
	lines, _ := log.All()
	for _, l := range lines {
		if l.Time.After(first[0].Sent.Add(-time.Second)) && l.Time.Before(first[0].Ended.Add(time.Second)) {
			t.Log(l.Text)
		}
	}
}

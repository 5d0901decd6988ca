package tests

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
)

// far is a program whose worker drains by itself, at the far end of a Distance.
var far = strings.Replace(lab.Web, "127.0.0.1:0", lab.FarEnd+":8080", 1)

// TestWorkerThatDrainsItselfLosesNothingFarAway: the worker gets TERM as soon as the next one serves, while handshakes
// with it are under way and connections wait in its queue.
func TestWorkerThatDrainsItselfLosesNothingFarAway(t *testing.T) {
	d := lab.Apart(t, 20*time.Millisecond)
	m := lab.Prepare(t)
	m.Via = d.Via()
	m.Start(strings.Replace(far, "{worker}", "{hello}", 1))
	m.Serves(1)
	l := &lab.Traffic{}
	l.Load = load.New(l.Collector.Add)
	s := &load.Driver{Dial: d.Dial(lab.FarEnd + ":8080"), Ask: load.Get("http://test/", nil), Timeout: lab.AnswerTimeout}
	l.Loop(s, 100, 0, func() time.Duration { return 0 })
	t.Cleanup(l.Stop)
	const reloads = 20
	var told []time.Duration
	for n := 2; n <= reloads+1; n++ {
		m.Reload()
		served := m.Serves(n)
		told = append(told, m.Await(lab.Says(lab.WorkerTold), lab.Gen(n-1)).Time.Sub(served.Time))
	}
	m.Gone(reloads)
	l.Lossless(t)
	slices.Sort(told)
	if usual := told[reloads/2]; usual > 50*time.Millisecond { // one may take longer on a busy machine
		t.Errorf("a worker that drains by itself was told to stop %v after the switch", usual)
	}
	m.Never(lab.Says(lab.WorkerKilled))
}

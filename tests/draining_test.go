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

// asUnderTheUnit executes a command as root with the capabilities that systemd/supervisord.service leaves.
var asUnderTheUnit = []string{"setpriv", "--bounding-set",
	"-all,+setuid,+setgid,+kill,+chown,+fowner,+dac_override,+sys_resource,+sys_nice,+net_bind_service"}

// TestWorkerOfAnotherUserThatGoesAloneLosesNoRequest: three of four workers, which die of TERM, accept from one socket
// beside the fourth, are busy when they are scaled away, and get no request between their last answers and TERM. If
// supervisord could not see that, TERM would come after drain.timeout, in the middle of other requests.
func TestWorkerOfAnotherUserThatGoesAloneLosesNoRequest(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "start workers as another user")
	lab.Need(t, asUnderTheUnit[0])
	lab.OpenToAll(t)
	m := lab.Prepare(t)
	m.Via = asUnderTheUnit
	m.Start(`
[program.web]
command = ["` + lab.Build(t, "examples/measure/naive") + `", "-die"]
user = "nobody"
workers = 4
ready.method = "accept"
drain = { timeout = "5s", silence = "100ms" }
listen = [{ address = "127.0.0.1:0", per_slot = false }]
`)
	m.Serves(1)
	const clients = 16
	ask := func(path string) *lab.Traffic {
		l := &lab.Traffic{}
		l.Load = load.New(l.Collector.Add)
		ask := load.Get("http://test"+path, nil)
		l.Loop(&load.Driver{Dial: load.Dial(m.Address()), Ask: ask, Timeout: lab.AnswerTimeout}, clients, clients, nil)
		t.Cleanup(l.Stop)
		return l
	}
	first := ask("/slow?d=2s")
	m.Until("the status has the connections", func() bool {
		open := 0
		for _, w := range m.Status().Programs[0].Generations[0].Workers {
			if w.ConnectionsError != "" {
				t.Errorf("the connections of a worker: %s", w.ConnectionsError)
				return true
			}
			open += w.Connections
		}
		return open == clients
	})
	m.CtlOK("scale", "web", "1")
	first.Wait()
	first.Lossless(t)
	blind := lab.Contains("cannot see which connections the old workers use")
	m.AwaitN(3, func(e lab.Entry) bool { return e.Msg == lab.WorkerTold || blind(e) })
	second := ask("/slow?d=6s")
	second.Wait()
	second.Lossless(t)
	m.Never(blind)
}

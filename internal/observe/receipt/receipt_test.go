package receipt

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"example.org/supervisord/internal/observe/kernel"
	"example.org/supervisord/supervisor"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// stream feeds a recorder; at counts seconds.
type stream struct {
	*Recorder
	done []Receipt
}

func newStream() *stream { return &stream{Recorder: NewRecorder()} }

func (s *stream) at(seconds int, reports ...supervisor.Report) {
	for _, r := range reports {
		s.done = append(s.done, s.See(supervisor.Update{Time: began.Add(time.Duration(seconds) * time.Second), Program: "web", Report: r})...)
	}
}

// serves says that generation 1 serves.
func serves() *stream {
	s := newStream()
	s.at(0, supervisor.Report{Kind: supervisor.TrialBegan, Generation: 1, Reason: "start"},
		supervisor.Report{Kind: supervisor.WorkerSpawned, Generation: 1, Worker: 1, PID: 10})
	s.at(1, supervisor.Report{Kind: supervisor.WorkerReady, Generation: 1, Worker: 1, PID: 10},
		supervisor.Report{Kind: supervisor.GenerationServes, Generation: 1, Took: time.Second})
	s.done = nil
	return s
}

func (s *stream) trial() {
	s.at(10, supervisor.Report{Kind: supervisor.TrialBegan, Generation: 2, Serving: 1, Reason: "HUP"})
	s.at(11, supervisor.Report{Kind: supervisor.WorkerSpawned, Generation: 2, Worker: 2, PID: 20},
		supervisor.Report{Kind: supervisor.WorkerSpawned, Generation: 2, Worker: 3, Slot: 1, PID: 21})
}

func (s *stream) only(t *testing.T) Receipt {
	t.Helper()
	if len(s.done) != 1 {
		t.Fatalf("%d receipts, want one: %+v", len(s.done), s.done)
	}
	return s.done[0]
}

func TestAReloadThatServes(t *testing.T) {
	s := serves()
	s.trial()
	s.at(13, supervisor.Report{Kind: supervisor.WorkerReady, Generation: 2, Worker: 2})
	s.at(14, supervisor.Report{Kind: supervisor.WorkerReady, Generation: 2, Worker: 3})
	s.at(16, supervisor.Report{Kind: supervisor.GenerationServes, Generation: 2, Serving: 1, Took: 6 * time.Second})
	s.at(16, supervisor.Report{Kind: supervisor.WorkerStopping, Generation: 1, Worker: 1, Signal: "TERM"})
	if len(s.done) > 0 || len(s.Busy()) != 1 {
		t.Fatalf("it has ended before the old generation has: %+v", s.done)
	}
	s.at(46, supervisor.Report{Kind: supervisor.WorkerKilled, Generation: 1, Worker: 1, PID: 10, Reason: "still there"},
		supervisor.Report{Kind: supervisor.WorkerStopped, Generation: 1, Worker: 1},
		supervisor.Report{Kind: supervisor.GenerationGone, Generation: 1, Killed: 1})
	at := func(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }
	want := Receipt{Program: "web", Generation: 2, Replaced: 1, Outcome: Served, Reason: "HUP", Began: at(10), Decided: at(16), Ended: at(46),
		Took: 6 * time.Second, SpawnToReady: 3 * time.Second, Overlap: 35 * time.Second, Drain: 30 * time.Second,
		Killed: []Kill{{1, 1, 0, 10, "still there"}}, AcceptQueue: map[string]int{}}
	if got := s.only(t); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if len(s.Busy()) != 0 {
		t.Error("it is still busy")
	}
}

func TestAReloadThatFails(t *testing.T) {
	s := serves()
	s.trial()
	s.at(15, supervisor.Report{Kind: supervisor.TrialFailed, Generation: 2, Serving: 1, Worker: 3, Slot: 1, PID: 21, Step: "start", Reason: "exited with status 1", Tail: []string{"no"}, Took: 5 * time.Second})
	if open := s.Open("web"); len(open) != 1 || open[0].Outcome != Failed {
		t.Fatalf("open are %+v", open)
	}
	s.at(17, supervisor.Report{Kind: supervisor.GenerationGone, Generation: 2})
	got := s.only(t)
	if got.Outcome != Failed || got.Replaced != 1 || got.Drain != 2*time.Second || got.Overlap != 6*time.Second ||
		!reflect.DeepEqual(got.Failure, &Failure{"start", "exited with status 1", 3, 1, 21, []string{"no"}}) {
		t.Errorf("got %+v", got)
	}
}

func TestAFirstStartHasNothingToDrain(t *testing.T) {
	s := newStream()
	s.at(0, supervisor.Report{Kind: supervisor.TrialBegan, Generation: 1, Reason: "start"})
	s.at(1, supervisor.Report{Kind: supervisor.GenerationServes, Generation: 1, Took: time.Second})
	if got := s.only(t); got.Outcome != Served || got.Drain != 0 || got.Overlap != 0 || !got.Ended.Equal(got.Decided) {
		t.Errorf("got %+v", got)
	}
}

func TestAStopDuringATrial(t *testing.T) {
	s := serves()
	s.trial()
	s.at(20, supervisor.Report{Kind: supervisor.GenerationGone, Generation: 2}, supervisor.Report{Kind: supervisor.GenerationGone, Generation: 1})
	if got := s.only(t); got.Outcome != Stopped {
		t.Errorf("got %+v", got)
	}
}

func TestStopFirstHasNoOverlap(t *testing.T) {
	s := serves()
	s.at(10, supervisor.Report{Kind: supervisor.TrialBegan, Generation: 2, Serving: 1},
		supervisor.Report{Kind: supervisor.WorkerStopping, Generation: 1, Worker: 1})
	s.at(11, supervisor.Report{Kind: supervisor.WorkerKilled, Generation: 1, Worker: 1}, supervisor.Report{Kind: supervisor.WorkerStopped, Generation: 1, Worker: 1})
	s.at(12, supervisor.Report{Kind: supervisor.WorkerSpawned, Generation: 2, Worker: 2})
	s.at(13, supervisor.Report{Kind: supervisor.WorkerReady, Generation: 2, Worker: 2},
		supervisor.Report{Kind: supervisor.GenerationServes, Generation: 2, Serving: 1}, supervisor.Report{Kind: supervisor.GenerationGone, Generation: 1})
	if got := s.only(t); got.Overlap != 0 || got.SpawnToReady != time.Second || len(got.Killed) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestTwoDrainsAtOnceAreKeptApart(t *testing.T) {
	s := serves()
	s.trial()
	s.at(12, supervisor.Report{Kind: supervisor.GenerationServes, Generation: 2, Serving: 1})
	s.at(20, supervisor.Report{Kind: supervisor.TrialBegan, Generation: 3, Serving: 2})
	s.at(21, supervisor.Report{Kind: supervisor.GenerationServes, Generation: 3, Serving: 2})
	s.at(22, supervisor.Report{Kind: supervisor.WorkerKilled, Generation: 2, Worker: 2})
	s.at(23, supervisor.Report{Kind: supervisor.GenerationGone, Generation: 2})
	if got := s.only(t); got.Generation != 3 || got.Drain != 2*time.Second || len(got.Killed) != 1 {
		t.Errorf("got %+v", got)
	}
	s.done = nil
	s.at(32, supervisor.Report{Kind: supervisor.GenerationGone, Generation: 1})
	if got := s.only(t); got.Generation != 2 || got.Drain != 20*time.Second || len(got.Killed) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestTheLastTwentyAreKept(t *testing.T) {
	s := newStream()
	for n := 1; n <= 50; n++ {
		s.at(n, supervisor.Report{Kind: supervisor.TrialBegan, Generation: n}, supervisor.Report{Kind: supervisor.TrialFailed, Generation: n},
			supervisor.Report{Kind: supervisor.GenerationGone, Generation: n})
	}
	list := s.Receipts("web")
	if len(list) != kept || list[0].Generation != 50 || list[19].Generation != 31 || len(s.Lives("web")) != kept {
		t.Errorf("%d are kept, from %d on", len(list), list[0].Generation)
	}
	if len(s.Receipts("other")) != 0 {
		t.Error("another program has some")
	}
}

func TestTheTimelineOfAGeneration(t *testing.T) {
	s := serves()
	s.trial()
	s.at(16, supervisor.Report{Kind: supervisor.GenerationServes, Generation: 2, Serving: 1})
	s.at(20, supervisor.Report{Kind: supervisor.GenerationGone, Generation: 1})
	at := func(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }
	want := []Life{{Generation: 1, Reason: "start", Began: at(0), Served: at(1), Retired: at(16), Gone: at(20)},
		{Generation: 2, Reason: "HUP", Began: at(10), Served: at(16)}}
	if got := s.Lives("web"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestSamplesStayFew(t *testing.T) {
	r := &Receipt{}
	for i := range 10_000 {
		r.sample(time.Duration(i), i)
	}
	if n := len(r.Connections); n > maxSamples || n < maxSamples/2 || r.Connections[0].Open != 0 || r.Connections[n-1].Open != 9999 {
		t.Errorf("%d samples: %v", n, r.Connections)
	}
	for i := 1; i < len(r.Connections); i++ {
		if r.Connections[i].At <= r.Connections[i-1].At {
			t.Fatalf("not in order: %v", r.Connections)
		}
	}
}

// status is what a status says at a moment when generation 1 drains.
func status(generations ...supervisor.GenerationStatus) *supervisor.Status {
	return &supervisor.Status{Programs: []supervisor.ProgramStatus{{Name: "web", Generations: generations,
		Listeners: []supervisor.ListenerStatus{{Name: "http", Address: "127.0.0.1:80", FDs: []int{7, 8}}}}}}
}

func ago(n int) *time.Time { t := began.Add(time.Duration(n) * time.Second); return &t }

func TestWhatIsMissedIsSaid(t *testing.T) {
	s := serves()
	s.trial()
	now := began.Add(time.Minute)
	done := s.Resync(status(
		supervisor.GenerationStatus{Number: 2, Role: supervisor.RoleServing, Began: *ago(10), Served: ago(15)},
		supervisor.GenerationStatus{Number: 1, Role: supervisor.RoleDraining, Began: *ago(0), Served: ago(1), Retired: ago(15)}), now, true)
	if len(done) != 0 {
		t.Fatalf("it has ended: %+v", done)
	}
	s.at(70, supervisor.Report{Kind: supervisor.GenerationGone, Generation: 1})
	if got := s.only(t); !got.Gap || got.Outcome != Served || got.Took != 5*time.Second || got.Drain != 55*time.Second {
		t.Errorf("got %+v", got)
	}
}

func TestAReloadThatEndedUnseen(t *testing.T) {
	s := serves()
	s.trial()
	done := s.Resync(status(supervisor.GenerationStatus{Number: 5, Role: supervisor.RoleServing, Began: *ago(30), Served: ago(35)}), began.Add(time.Minute), true)
	if len(done) != 1 || done[0].Outcome != Unknown || !done[0].Gap {
		t.Errorf("got %+v", done)
	}
	s.trial()
	if done = s.Resync(&supervisor.Status{}, began.Add(time.Hour), true); len(done) != 1 || done[0].Outcome != Unknown {
		t.Errorf("of a program that is gone: %+v", done)
	}
}

func TestAnImageThatGoesOnFindsADrain(t *testing.T) {
	s := newStream()
	st := status(
		supervisor.GenerationStatus{Number: 2, Role: supervisor.RoleServing, Began: *ago(10), Served: ago(15), Reason: "HUP"},
		supervisor.GenerationStatus{Number: 1, Role: supervisor.RoleDraining, Began: *ago(0), Served: ago(1), Retired: ago(15)})
	st.Started = *ago(20)
	s.Resync(st, began.Add(20*time.Second), false)
	s.Resync(st, began.Add(21*time.Second), false) // nothing twice
	s.at(25, supervisor.Report{Kind: supervisor.GenerationGone, Generation: 1})
	if got := s.only(t); got.Generation != 2 || got.Replaced != 1 || got.Outcome != Served || !got.Gap || got.Drain != 10*time.Second || got.Reason != "HUP" {
		t.Errorf("got %+v", got)
	}
	if len(s.Lives("web")) != 2 {
		t.Errorf("lives are %+v", s.Lives("web"))
	}
}

// TestTheFirstStartIsSeenWholeHoweverFarItIsWhenTheStatusIsSeen has the updates come after a status that is newer.
func TestTheFirstStartIsSeenWholeHoweverFarItIsWhenTheStatusIsSeen(t *testing.T) {
	worker := []supervisor.WorkerStatus{{PID: 10}}
	for _, g := range []supervisor.GenerationStatus{
		{Number: 1, Role: supervisor.RoleTrial, Began: *ago(0)},
		{Number: 1, Role: supervisor.RoleTrial, Began: *ago(0), Workers: worker},
		{Number: 1, Role: supervisor.RoleServing, Began: *ago(0), Served: ago(1), Workers: worker},
	} {
		s := newStream()
		st := status(g)
		st.Started = began
		s.Resync(st, *ago(2), false)
		s.at(0, supervisor.Report{Kind: supervisor.TrialBegan, Generation: 1}, supervisor.Report{Kind: supervisor.WorkerSpawned, Generation: 1})
		s.at(1, supervisor.Report{Kind: supervisor.WorkerReady, Generation: 1}, supervisor.Report{Kind: supervisor.GenerationServes, Generation: 1, Took: time.Second})
		if got := s.only(t); got.Gap || got.Outcome != Served || got.SpawnToReady != time.Second || len(s.Lives("web")) != 1 {
			t.Errorf("got %+v", got)
		}
	}
}

// fake is a kernel that says what the test wants.
type fake struct {
	queues  map[int]int
	open    int
	err     error
	refused kernel.Refused
}

func (f *fake) AcceptQueue(fd int) (kernel.Queue, error) {
	n, ok := f.queues[fd]
	if !ok {
		return kernel.Queue{}, kernel.ErrNoQueue
	}
	return kernel.Queue{Waiting: n, Limit: 128}, nil
}
func (f *fake) Connections(q []kernel.Query) []kernel.Count {
	return slices.Repeat([]kernel.Count{{Open: f.open, Err: f.err}}, len(q))
}
func (f *fake) Listen() (kernel.Refused, error) { return f.refused, nil }

func TestTheKernelsFigures(t *testing.T) {
	s := serves()
	k := &fake{queues: map[int]int{7: 1, 8: 5}, refused: kernel.Refused{Overflows: 100, Drops: 200}}
	sampler := NewSampler(s.Recorder, k)
	s.trial()
	sampler.Refused()
	st := status(supervisor.GenerationStatus{Number: 1, Role: supervisor.RoleDraining, Workers: []supervisor.WorkerStatus{{PID: 10}}})
	sampler.Queues(st)
	sampler.Connections(st, began)
	s.at(12, supervisor.Report{Kind: supervisor.GenerationServes, Generation: 2, Serving: 1})
	for i, n := range []int{9, 4, 0} {
		k.open = n
		sampler.Connections(st, began.Add(time.Duration(12+i)*time.Second))
	}
	k.queues = map[int]int{7: 3}
	sampler.Queues(st)
	k.refused = kernel.Refused{Overflows: 103, Drops: 204}
	sampler.Refused()
	s.at(20, supervisor.Report{Kind: supervisor.GenerationGone, Generation: 1})
	got := s.only(t)
	want := []Sample{{0, 9}, {time.Second, 4}, {2 * time.Second, 0}}
	if got.ListenOverflows != 3 || got.ListenDrops != 4 || got.AcceptQueue["http"] != 5 || got.LongestQueue() != 5 || !reflect.DeepEqual(got.Connections, want) {
		t.Errorf("got %+v", got)
	}
	if sampler.Refused(); len(sampler.before) != 0 {
		t.Error("the sampler remembers what has ended")
	}
}

func TestThatConnectionsAreNotKnownIsSaid(t *testing.T) {
	s := serves()
	sampler := NewSampler(s.Recorder, &fake{err: errors.New("permission denied")})
	s.trial()
	s.at(12, supervisor.Report{Kind: supervisor.GenerationServes, Generation: 2, Serving: 1})
	sampler.Connections(status(supervisor.GenerationStatus{Number: 1}), began)
	s.at(13, supervisor.Report{Kind: supervisor.GenerationGone, Generation: 1})
	if got := s.only(t); got.ConnectionsWhy != "permission denied" || got.Connections != nil {
		t.Errorf("got %+v", got)
	}
}

func TestAReceiptIsOneLineInTheLog(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	r := &Receipt{Program: "web", Generation: 2, Outcome: Failed, Failure: &Failure{Step: "start", Reason: "exited"}, Killed: []Kill{{Reason: "late"}},
		Connections: []Sample{{0, 9}, {1, 2}}, AcceptQueue: map[string]int{"a": 1, "b": 4}, ListenDrops: 3, Gap: true}
	r.Log(zap.New(core))
	if logs.Len() != 1 || logs.All()[0].Message != Message {
		t.Fatalf("logged %+v", logs.All())
	}
	got := logs.All()[0].ContextMap()
	for key, want := range map[string]any{"program": "web", "outcome": "failed", "step": "start", "killed": int64(1), "accept_queue": int64(4),
		"connections_at_first": int64(9), "connections_at_last": int64(2), "listen_drops": int64(3), "gap": true, "killed_because": "late"} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}

func TestWhatHasNotHappenedIsNotInTheJSON(t *testing.T) {
	text, err := json.Marshal(Receipt{Program: "web", Outcome: UnderWay})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil || got["decided"] != nil || got["ended"] != nil || got["took_ns"] != 0.0 {
		t.Errorf("%v: %s", err, text)
	}
}

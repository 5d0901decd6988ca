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
	"example.org/supervisord/supervisor/program"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// stream feeds a recorder with the updates of the reload to generation 2, which replaces generation 1.
type stream struct {
	*Recorder
	record program.ReloadRecord
	done   []Receipt
}

func newStream() *stream {
	return &stream{Recorder: NewRecorder(&fake{}), record: program.ReloadRecord{Generation: 2, Replaced: 1, Outcome: program.Pending, Began: *ago(10)}}
}

func (s *stream) tell(kind program.ReportKind) {
	if r := s.See(supervisor.Update{Program: "web", Report: program.Report{Kind: kind, Reload: s.record.Copy()}}); r != nil {
		s.done = append(s.done, *r)
	}
}

func (s *stream) begins() { s.tell(program.TrialBegan) }

func (s *stream) serves(at int) {
	s.record.Outcome, s.record.Decided = program.Serves, *ago(at)
	s.tell(program.GenerationServes)
}

func (s *stream) ends(at int) {
	s.record.Ended = *ago(at)
	s.tell(program.GenerationGone)
}

func (s *stream) only(t *testing.T) Receipt {
	t.Helper()
	if len(s.done) != 1 {
		t.Fatalf("%d receipts, want one: %+v", len(s.done), s.done)
	}
	return s.done[0]
}

func TestReceiptIsCompleteWhenTheReloadHasEnded(t *testing.T) {
	s := newStream()
	s.begins()
	s.serves(16)
	if len(s.done) > 0 || !s.Busy() {
		t.Fatalf("the receipt is complete before the old generation is gone: %+v", s.done)
	}
	s.ends(46)
	if got := s.only(t); !reflect.DeepEqual(got, Receipt{Program: "web", ReloadRecord: s.record}) {
		t.Errorf("got %+v", got)
	}
	if s.Busy() {
		t.Error("it is still busy")
	}
	s.tell(program.GenerationGone)
	s.only(t)
}

func TestUpdatesWithoutRecordMakeNoReceipt(t *testing.T) {
	s := newStream()
	s.See(supervisor.Update{Program: "web", Report: program.Report{Kind: program.WorkerDied}})
	if s.Busy() {
		t.Error("it is busy")
	}
}

func TestReceiptsOfOtherProgramsAreKeptApart(t *testing.T) {
	s := newStream()
	s.begins()
	s.find("web", 2).queue("http", 7)
	records := []program.ReloadRecord{{Generation: 1}, s.record}
	if list := s.Receipts("web", records); len(list) != 2 || list[0].Generation != 2 || list[0].LongestQueue() != 7 || list[1].LongestQueue() != 0 {
		t.Errorf("of web: %+v", list)
	}
	if list := s.Receipts("other", records); len(list) != 2 || list[0].LongestQueue() != 0 {
		t.Errorf("of another program: %+v", list)
	}
}

func TestFiguresOfOldReloadsAreForgotten(t *testing.T) {
	s := newStream()
	for n := 1; n <= 3*kept; n++ {
		s.record = program.ReloadRecord{Generation: n, Outcome: program.Serves, Decided: *ago(n), Ended: *ago(n)}
		s.tell(program.GenerationServes)
	}
	if n := len(s.programs["web"]); n != kept || len(s.done) != 3*kept {
		t.Errorf("%d are kept, of %d", n, len(s.done))
	}
}

func TestProgramThatIsBackCountsFromOne(t *testing.T) {
	s := newStream()
	s.begins()
	s.serves(16)
	s.find("web", 2).queue("http", 7)
	s.ends(46)
	s.record = program.ReloadRecord{Generation: 2, Outcome: program.Pending, Began: *ago(100)}
	s.begins()
	s.serves(101)
	s.ends(101)
	if len(s.done) != 2 || s.done[1].LongestQueue() != 0 {
		t.Errorf("got %+v", s.done)
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

// status returns a status while generation 1 drains.
func status(generations ...supervisor.GenerationStatus) *supervisor.Status {
	return &supervisor.Status{Programs: []supervisor.ProgramStatus{{Name: "web", Generations: generations,
		Listeners: []supervisor.ListenerStatus{{Name: "http", Address: "127.0.0.1:80", FDs: []int{7, 8}}}}}}
}

func ago(n int) *time.Time { t := began.Add(time.Duration(n) * time.Second); return &t }

func (s *stream) status(started int) *supervisor.Status {
	st := status()
	st.Started = *ago(started)
	st.Programs[0].Reloads = []program.ReloadRecord{s.record}
	return st
}

func TestReceiptIsCompleteAfterMissedUpdates(t *testing.T) {
	for name, seen := range map[string]bool{"of its beginning": true, "of all of it": false} {
		s := newStream()
		if seen {
			s.begins()
		}
		s.record.Outcome, s.record.Decided, s.record.Ended = program.Serves, *ago(15), *ago(20)
		done := s.Resync(s.status(0))
		if len(done) != 1 || done[0].Generation != 2 || s.Busy() {
			t.Errorf("%s: got %+v", name, done)
		}
		if again := s.Resync(s.status(0)); len(again) != 0 {
			t.Errorf("%s: once more: %+v", name, again)
		}
	}
}

func TestNextImageContinuesReceiptsAndRepeatsNone(t *testing.T) {
	s := newStream()
	s.record.Outcome, s.record.Decided = program.Serves, *ago(15)
	ended := program.ReloadRecord{Generation: 1, Outcome: program.Serves, Decided: *ago(1), Ended: *ago(1)}
	st := s.status(20)
	st.Programs[0].Reloads = append(st.Programs[0].Reloads, ended)
	if done := s.Resync(st); len(done) != 0 || !s.Busy() {
		t.Fatalf("got %+v", done)
	}
	s.ends(25)
	if got := s.only(t); got.Generation != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestReceiptOfFirstStartComesOnce(t *testing.T) {
	for _, far := range []func(*stream){
		func(*stream) {},
		func(s *stream) {
			s.record.Outcome, s.record.Decided, s.record.Ended = program.Serves, *ago(15), *ago(15)
		},
	} {
		s := newStream()
		before := s.record
		far(s)
		s.done = s.Resync(s.status(0))
		s.record = before // the updates arrive after a newer status
		s.begins()
		s.record.Ended = *ago(15)
		s.serves(15)
		s.only(t)
	}
}

// fake is a kernel whose answers the test sets.
type fake struct {
	queues  map[int]int
	open    int
	err     error
	refused kernel.Refused
}

func (f *fake) AcceptQueue(fd int) (waiting, limit int, err error) {
	n, ok := f.queues[fd]
	if !ok {
		return 0, 0, errors.New("no queue")
	}
	return n, 128, nil
}
func (f *fake) Connections(q []kernel.Query) []kernel.Count {
	return slices.Repeat([]kernel.Count{{Open: f.open, Err: f.err}}, len(q))
}
func (f *fake) Listen() (kernel.Refused, error) { return f.refused, nil }

func TestReceiptHasFiguresOfKernel(t *testing.T) {
	s := newStream()
	k := &fake{queues: map[int]int{7: 1, 8: 5}, refused: kernel.Refused{Overflows: 100, Drops: 200}}
	s.kernel = k
	s.begins()
	st := status(supervisor.GenerationStatus{Number: 1, Role: program.RoleDraining, Workers: []supervisor.WorkerStatus{{PID: 10}}})
	s.Queues(st)
	s.Connections(st, began)
	s.serves(12)
	for i, n := range []int{9, 4, 0} {
		k.open = n
		s.Connections(st, began.Add(time.Duration(12+i)*time.Second))
	}
	k.queues = map[int]int{7: 3}
	s.Queues(st)
	k.refused = kernel.Refused{Overflows: 103, Drops: 204}
	s.ends(20)
	got := s.only(t)
	want := []Sample{{0, 9}, {time.Second, 4}, {2 * time.Second, 0}}
	if got.ListenOverflows != 3 || got.ListenDrops != 4 || got.AcceptQueue["http"] != 5 || got.LongestQueue() != 5 || !reflect.DeepEqual(got.Connections, want) {
		t.Errorf("got %+v", got)
	}
	k.refused = kernel.Refused{Overflows: 1000, Drops: 1000}
	if s.Connections(st, began); s.find("web", 2).ListenDrops != 4 {
		t.Error("the figures of a finished reload changed")
	}
}

func TestReceiptExplainsUnknownConnections(t *testing.T) {
	s := newStream()
	s.kernel = &fake{err: errors.New("permission denied")}
	s.begins()
	s.serves(12)
	s.Connections(status(supervisor.GenerationStatus{Number: 1}), began)
	s.ends(13)
	if got := s.only(t); got.ConnectionsError != "permission denied" || got.Connections != nil {
		t.Errorf("got %+v", got)
	}
}

func TestReceiptIsOneLogLine(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	r := &Receipt{"web", program.ReloadRecord{Generation: 2, Outcome: program.WorkerDown, Failure: &program.Failure{Step: "start", Reason: "exited"},
		Killed: 1, Kills: []program.KilledWorker{{Reason: "late"}}},
		Figures{Connections: []Sample{{0, 9}, {1, 2}}, AcceptQueue: map[string]int{"a": 1, "b": 4}, ListenDrops: 3}}
	r.Quiet, r.Left, r.Reset = 10*time.Second, &program.Look{Queued: 1, Handshakes: 2, Unread: 4, Answering: 5}, 7
	r.RolledBack, r.RolledBackBy = time.Unix(1, 0), "alice"
	r.Log(zap.New(core))
	if logs.Len() != 1 || logs.All()[0].Message != "reload receipt" {
		t.Fatalf("logged %+v", logs.All())
	}
	got := logs.All()[0].ContextMap()
	for key, want := range map[string]any{"program": "web", "outcome": "worker", "step": "start", "killed": int64(1), "accept_queue": int64(4),
		"connections_at_first": int64(9), "connections_at_last": int64(2), "listen_drops": int64(3), "killed_because": "late",
		"quiet": 10 * time.Second, "left_queued": int64(3), "left_unread": int64(4), "left_answering": int64(5), "reset": int64(7),
		"rolled_back_by": "alice"} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}

func TestReceiptOmitsStepsThatHaveNotHappened(t *testing.T) {
	text, err := json.Marshal(Receipt{Program: "web", ReloadRecord: program.ReloadRecord{Outcome: program.Pending}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil || got["decided"] != nil || got["ended"] != nil || got["took_ns"] != 0.0 {
		t.Errorf("%v: %s", err, text)
	}
}

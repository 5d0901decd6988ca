package receipt

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

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
	return &stream{Recorder: NewRecorder(),
		record: program.ReloadRecord{Generation: 2, Replaced: 1, Outcome: program.Pending,
			Instants: program.Instants{Began: *ago(10)}}}
}

func (s *stream) tell(kind program.ReportKind) {
	if r := s.See(supervisor.Update{Program: "web",
		Report: program.Report{Kind: kind, Reload: new(s.record)}}); r != nil {
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
	if len(s.done) > 0 {
		t.Fatalf("the receipt is complete before the old generation is gone: %+v", s.done)
	}
	s.ends(46)
	if got := s.only(t); !reflect.DeepEqual(got, Receipt{Program: "web", ReloadRecord: s.record}) {
		t.Errorf("got %+v", got)
	}
	s.tell(program.GenerationGone)
	s.See(supervisor.Update{Program: "web", Report: program.Report{Kind: program.WorkerDied}})
	s.only(t)
}

func TestOldReloadsAreForgotten(t *testing.T) {
	s := newStream()
	for n := 1; n <= 3*kept; n++ {
		s.record = program.ReloadRecord{Generation: n, Outcome: program.Serves,
			Instants: program.Instants{Decided: *ago(n), Ended: *ago(n)}}
		s.tell(program.GenerationServes)
	}
	if n := len(s.given["web"]); n != kept || len(s.done) != 3*kept {
		t.Errorf("%d are kept, of %d", n, len(s.done))
	}
}

func TestProgramThatIsBackCountsFromOne(t *testing.T) {
	s := newStream()
	s.begins()
	s.serves(16)
	s.ends(46)
	s.record = program.ReloadRecord{Generation: 2, Outcome: program.Pending, Instants: program.Instants{Began: *ago(100)}}
	s.begins()
	s.serves(101)
	s.ends(101)
	if len(s.done) != 2 || s.done[1].Began != *ago(100) {
		t.Errorf("got %+v", s.done)
	}
}

func ago(n int) *time.Time { t := began.Add(time.Duration(n) * time.Second); return &t }

func (s *stream) status(started int) *supervisor.Status {
	return &supervisor.Status{Started: *ago(started),
		Programs: []supervisor.ProgramStatus{{Name: "web",
			History: supervisor.History{Reloads: []program.ReloadRecord{s.record}}}}}
}

func TestReceiptIsCompleteAfterMissedUpdates(t *testing.T) {
	for name, seen := range map[string]bool{"of its beginning": true, "of all of it": false} {
		s := newStream()
		if seen {
			s.begins()
		}
		s.record.Outcome, s.record.Decided, s.record.Ended = program.Serves, *ago(15), *ago(20)
		done := s.Resync(s.status(0))
		if len(done) != 1 || done[0].Generation != 2 {
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
	ended := program.ReloadRecord{Generation: 1, Outcome: program.Serves, Instants: program.Instants{Decided: *ago(1),
		Ended: *ago(1)}}
	st := s.status(20)
	st.Programs[0].Reloads = append(st.Programs[0].Reloads, ended)
	if done := s.Resync(st); len(done) != 0 {
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

func TestReceiptIsOneLogLine(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	r := &Receipt{"web", program.ReloadRecord{Generation: 2, Outcome: program.WorkerDown,
		Failure: &program.Failure{Step: "start", Reason: "exited"},
		Killed:  1, Kills: []program.KilledWorker{{Reason: "late"}}}}
	r.Quiet, r.Left, r.Reset = 10*time.Second, &program.Look{Queued: 1, Handshakes: 2, Unread: 4, Answering: 5}, 7
	r.RolledBack, r.RolledBackBy = time.Unix(1, 0), "alice"
	r.Log(zap.New(core))
	if logs.Len() != 1 || logs.All()[0].Message != "reload report" {
		t.Fatalf("logged %+v", logs.All())
	}
	got := logs.All()[0].ContextMap()
	for key, want := range map[string]any{"program": "web", "outcome": "worker", "step": "start", "killed": int64(1),
		"killed_because": "late",
		"quiet":          10 * time.Second, "left_queued": int64(3), "left_unread": int64(4), "left_answering": int64(
			5), "reset": int64(7),
		"rolled_back_by": "alice"} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}

func TestReceiptForPeopleSaysWhatTheLinesBeforeDoNot(t *testing.T) {
	for want, record := range map[string]program.ReloadRecord{
		"report on generation 2: worker failed after 3ms": {Generation: 2, Outcome: program.WorkerDown,
			Durations: program.Durations{Took: 3 * time.Millisecond}},
		"report on generation 2: superseded after 1s": {Generation: 2, Replaced: 1, Outcome: program.Superseded,
			Durations: program.Durations{Took: time.Second}},
		"report on generation 1: serves after 1s": {Generation: 1, Outcome: program.Serves,
			Durations: program.Durations{Took: time.Second}},
		"report on generation 2: serves after 1s; generation 1 still drains": {Generation: 2, Replaced: 1,
			Outcome: program.Serves, Durations: program.Durations{Took: time.Second}},
		"report on generation 2: serves after 1s; 2s beside generation 1, which drained 3s; 1 killed": {Generation: 2,
			Replaced: 1, Outcome: program.Serves, Instants: program.Instants{Ended: began}, Killed: 1,
			Durations: program.Durations{Took: time.Second, Overlap: 2 * time.Second, Drain: 3 * time.Second}},
	} {
		if got := (&Receipt{"web", record}).Text(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestReceiptOmitsStepsThatHaveNotHappened(t *testing.T) {
	text, err := json.Marshal(Receipt{Program: "web", ReloadRecord: program.ReloadRecord{Outcome: program.Pending}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil || got["decided"] != nil || got["ended"] != nil ||
		got["took_ns"] != 0.0 {
		t.Errorf("%v: %s", err, text)
	}
}

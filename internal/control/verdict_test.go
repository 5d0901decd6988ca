package control

import (
	"testing"
	"time"

	"example.org/supervisord/supervisor"
)

var at = time.Unix(1_000_000, 0)

// record is that of the reload to generation 7, which replaces generation 6.
func record(o Outcome) supervisor.ReloadRecord {
	r := supervisor.ReloadRecord{Generation: 7, Replaced: 6, Outcome: o, Took: time.Second}
	if o.Failed() || o == supervisor.Aborted {
		r.Failure = &supervisor.Failure{Step: "start", Reason: "because", Worker: 3, Tail: []string{"last words"}}
	}
	return r
}

// drained is record of one that serves, whose old generation has gone.
func drained(killed int) supervisor.ReloadRecord {
	r := record(supervisor.Serves)
	r.Ended, r.Killed = at, killed
	return r
}

func TestVerdictIsWhatTheRecordSays(t *testing.T) {
	for name, c := range map[string]struct {
		until  until
		record supervisor.ReloadRecord
		want   Outcome
	}{
		"on trial":                     {untilServes, record(supervisor.Pending), supervisor.Pending},
		"serves":                       {untilServes, record(supervisor.Serves), supervisor.Serves},
		"serves, and drains":           {untilDrained, record(supervisor.Serves), supervisor.Pending},
		"serves, and has drained":      {untilDrained, drained(0), supervisor.Serves},
		"serves by force":              {untilDrained, drained(2), Killed},
		"by force, and nobody minds":   {untilServes, drained(2), supervisor.Serves},
		"held":                         {untilHeld, record(supervisor.Held), supervisor.Held},
		"held, and the end waited for": {untilServes, record(supervisor.Held), supervisor.Pending},
		"promoted meanwhile":           {untilHeld, record(supervisor.Serves), supervisor.Serves},
		"preflight":                    {untilServes, record(supervisor.Preflight), supervisor.Preflight},
		"not ready":                    {untilServes, record(supervisor.NotReady), supervisor.NotReady},
		"worker":                       {untilDrained, record(supervisor.WorkerDown), supervisor.WorkerDown},
		"aborted":                      {untilHeld, record(supervisor.Aborted), supervisor.Aborted},
		"superseded":                   {untilServes, record(supervisor.Superseded), supervisor.Superseded},
		"stopped":                      {untilServes, record(supervisor.Stopped), supervisor.Stopped},
	} {
		tickets := []supervisor.Ticket{{Program: "web", Generation: 7}}
		saw, found := newWait(tickets, c.until), newWait(tickets, c.until)
		for _, other := range []supervisor.Update{{Program: "other", Report: supervisor.Report{Reload: &c.record}}, {Program: "web"}} {
			saw.see(other)
		}
		saw.see(supervisor.Update{Program: "web", Report: supervisor.Report{Reload: &c.record}})
		found.look(&supervisor.Status{Programs: []supervisor.ProgramStatus{{Name: "web", Reloads: []supervisor.ReloadRecord{c.record}}}})
		for how, w := range map[string]*wait{"in an update": saw, "in a status": found} {
			g := w.goals[0]
			if g.Outcome != c.want || (g.Step != "") != (c.record.Failure != nil) || g.Serving != 0 && g.Serving != 6 {
				t.Errorf("%s, %s: %+v, want %s", name, how, g, c.want)
			}
		}
	}
}

func TestRecordOfAnotherReloadIsNoVerdict(t *testing.T) {
	w := newWait([]supervisor.Ticket{{Program: "web", Generation: 8}}, untilServes)
	r := record(supervisor.WorkerDown)
	w.see(supervisor.Update{Program: "web", Report: supervisor.Report{Reload: &r}})
	if w.ended() {
		t.Errorf("the verdict is %+v", w.verdict())
	}
}

func TestWhatHasEndedStaysAsItIsButTheDrainGoesOn(t *testing.T) {
	w := newWait([]supervisor.Ticket{{Program: "web", Generation: 7}, {Program: "other", Generation: 7}}, untilServes)
	for _, r := range []supervisor.ReloadRecord{record(supervisor.Serves), drained(0)} {
		w.see(supervisor.Update{Program: "web", Report: supervisor.Report{Reload: &r}})
	}
	held, pending := record(supervisor.Held), record(supervisor.Pending)
	w.until = untilHeld
	w.see(supervisor.Update{Program: "other", Report: supervisor.Report{Reload: &held}})
	w.see(supervisor.Update{Program: "other", Report: supervisor.Report{Reload: &pending}})
	if w.goals[0].Outcome != supervisor.Serves || !w.goals[0].Drained || w.goals[1].Outcome != supervisor.Held {
		t.Errorf("the verdicts are %+v and %+v", w.goals[0], w.goals[1])
	}
}

func TestReloadWithoutARecord(t *testing.T) {
	for name, c := range map[string]struct {
		found supervisor.ProgramStatus
		want  Outcome
	}{
		"follows the trial":                        {supervisor.ProgramStatus{Newest: 6, Awaited: 7}, supervisor.Pending},
		"of many reloads ago":                      {supervisor.ProgramStatus{Newest: 40, Awaited: 40}, Unknown},
		"of a program that was removed and is new": {supervisor.ProgramStatus{Newest: 1, Awaited: 1}, supervisor.Stopped},
	} {
		w := newWait([]supervisor.Ticket{{Program: "web", Generation: 7}}, untilServes)
		c.found.Name = "web"
		w.look(&supervisor.Status{Programs: []supervisor.ProgramStatus{c.found}})
		if got := w.goals[0].Outcome; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestVerdictOfAStopIsWhatItsRecordSays(t *testing.T) {
	stop := func(generation, killed int, ended bool) *supervisor.StopRecord {
		s := &supervisor.StopRecord{Generation: generation, Killed: killed, Began: at}
		if ended {
			s.Ended = at.Add(time.Second)
		}
		return s
	}
	for name, c := range map[string]struct {
		found supervisor.ProgramStatus
		want  Outcome
	}{
		"still goes":                      {supervisor.ProgramStatus{State: supervisor.ShuttingOff, Newest: 7, Stop: stop(7, 0, false)}, supervisor.Pending},
		"down":                            {supervisor.ProgramStatus{State: supervisor.Down, Newest: 7, Stop: stop(7, 0, true)}, Down},
		"down by force":                   {supervisor.ProgramStatus{State: supervisor.Down, Newest: 7, Stop: stop(7, 2, true)}, Killed},
		"was down, and was started again": {supervisor.ProgramStatus{State: supervisor.Up, Newest: 8, Stop: stop(7, 0, true)}, Down},
		"was started before it was down":  {supervisor.ProgramStatus{State: supervisor.Up, Newest: 8, Stop: stop(7, 0, false)}, supervisor.Superseded},
		"another one since":               {supervisor.ProgramStatus{State: supervisor.Down, Newest: 9, Stop: stop(9, 0, true)}, supervisor.Superseded},
		"never ran":                       {supervisor.ProgramStatus{State: supervisor.Down}, Down},
	} {
		w := newWait([]supervisor.Ticket{{Program: "web", Generation: 7}}, untilDown)
		c.found.Name = "web"
		w.look(&supervisor.Status{Programs: []supervisor.ProgramStatus{c.found}})
		if got := w.goals[0].Outcome; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	w := newWait([]supervisor.Ticket{{Program: "web", Generation: 7}}, untilDown)
	w.see(supervisor.Update{Program: "web", Report: supervisor.Report{Kind: supervisor.TrialBegan, Generation: 8}})
	if got := w.goals[0].Outcome; got != supervisor.Superseded {
		t.Errorf("started again: %s", got)
	}
}

func TestAProgramThatIsNoLongerThereHasStopped(t *testing.T) {
	for u, want := range map[until]Outcome{untilServes: supervisor.Stopped, untilDown: Down} {
		w := newWait([]supervisor.Ticket{{Program: "web", Generation: 7}}, u)
		w.look(&supervisor.Status{})
		if got := w.goals[0].Outcome; got != want {
			t.Errorf("until %s: %s, want %s", u, got, want)
		}
	}
}

func TestTheNumbersOfAnotherInstanceMeanNothing(t *testing.T) {
	for _, u := range []until{untilServes, untilDown} {
		w := newWait([]supervisor.Ticket{{Program: "web", Generation: 7, Instance: "a"}}, u)
		w.look(&supervisor.Status{Instance: "b", Programs: []supervisor.ProgramStatus{{Name: "web", State: supervisor.Down,
			Reloads: []supervisor.ReloadRecord{record(supervisor.Serves)}}}})
		if got := w.goals[0].Outcome; got != Unknown {
			t.Errorf("until %s: %s", u, got)
		}
	}
}

func TestTheWorstDecides(t *testing.T) {
	w := newWait([]supervisor.Ticket{{Program: "web", Generation: 7}, {Program: "other", Generation: 7}}, untilServes)
	failed, serves := record(supervisor.WorkerDown), record(supervisor.Serves)
	w.see(supervisor.Update{Program: "other", Report: supervisor.Report{Reload: &failed}})
	if w.ended() {
		t.Error("one of two is not both")
	}
	w.see(supervisor.Update{Program: "web", Report: supervisor.Report{Reload: &serves}})
	v := w.verdict()
	if !w.ended() || v.Outcome != supervisor.WorkerDown || v.Programs[0].Outcome != supervisor.Serves || v.Programs[1].Tail[0] != "last words" {
		t.Errorf("the verdict is %+v", v)
	}
}

func TestAReloadOfNothingIsWell(t *testing.T) {
	if w := newWait(nil, untilServes); !w.ended() || w.verdict().Outcome != supervisor.Serves {
		t.Errorf("the verdict is %+v", w.verdict())
	}
}

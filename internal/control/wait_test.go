package control

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

var at = time.Unix(1_000_000, 0)

// record returns the record of the reload to generation 7, which replaces generation 6.
func record(o program.Outcome) program.ReloadRecord {
	r := program.ReloadRecord{Generation: 7, Replaced: 6, Outcome: o, Durations: program.Durations{Took: time.Second}}
	if o.Failed() || o == program.Aborted {
		r.Failure = &program.Failure{Step: "start", Reason: "because", Worker: 3, Tail: []string{"last words"}}
	}
	return r
}

// drained returns the record of a serving reload whose old generation is gone.
func drained(killed int) program.ReloadRecord {
	r := record(program.Serves)
	r.Ended, r.Killed = at, killed
	return r
}

// ticket is that of the reload to generation 7 of web.
var ticket = supervisor.Ticket{Program: "web", Generation: 7}

func waitFor(u Until) *wait { return newWait([]supervisor.Ticket{ticket}, u) }

// of is an update with the record of a reload.
func of(name string, r *program.ReloadRecord) supervisor.Update {
	return supervisor.Update{Program: name, Report: program.Report{Reload: r}}
}

// webIs is a status whose only program is web.
func webIs(p supervisor.ProgramStatus) *supervisor.Status {
	p.Name = "web"
	return &supervisor.Status{Programs: []supervisor.ProgramStatus{p}}
}

func history(all ...program.ReloadRecord) supervisor.History { return supervisor.History{Reloads: all} }

func TestVerdictFollowsTheRecord(t *testing.T) {
	for name, c := range map[string]struct {
		until  Until
		record program.ReloadRecord
		want   program.Outcome
	}{
		"on trial":                     {untilServes, record(program.Pending), program.Pending},
		"serves":                       {untilServes, record(program.Serves), program.Serves},
		"serves, and drains":           {untilDrained, record(program.Serves), program.Pending},
		"serves, and has drained":      {untilDrained, drained(0), program.Serves},
		"serves by force":              {untilDrained, drained(2), Killed},
		"by force, without --drained":  {untilServes, drained(2), program.Serves},
		"held":                         {untilHeld, record(program.Held), program.Held},
		"held, and the end waited for": {untilServes, record(program.Held), program.Pending},
		"promoted meanwhile":           {untilHeld, record(program.Serves), program.Serves},
		"not prepared":                 {untilServes, record(program.NotPrepared), program.NotPrepared},
		"not ready":                    {untilServes, record(program.NotReady), program.NotReady},
		"worker":                       {untilDrained, record(program.WorkerDown), program.WorkerDown},
		"aborted":                      {untilHeld, record(program.Aborted), program.Aborted},
		"superseded":                   {untilServes, record(program.Superseded), program.Superseded},
		"stopped":                      {untilServes, record(program.Stopped), program.Stopped},
	} {
		saw, found := waitFor(c.until), waitFor(c.until)
		saw.see(of("other", &c.record))
		saw.see(supervisor.Update{Program: "web"})
		saw.see(of("web", &c.record))
		found.look(webIs(supervisor.ProgramStatus{History: history(c.record)}))
		for how, w := range map[string]*wait{"in an update": saw, "in a status": found} {
			g := w.goals[0]
			if g.Outcome != c.want || (g.Reason == "because") != (c.record.Failure != nil) || g.Serving != 0 && g.Serving != 6 {
				t.Errorf("%s, %s: %+v, want %s", name, how, g, c.want)
			}
		}
	}
}

func TestRecordOfAnotherReloadIsIgnored(t *testing.T) {
	w := newWait([]supervisor.Ticket{{Program: "web", Generation: 8}}, untilServes)
	r := record(program.WorkerDown)
	w.see(of("web", &r))
	if len(w.pending()) == 0 {
		t.Errorf("the verdict is %+v", w.verdict())
	}
}

func TestTimeOutNamesTheKeptGeneration(t *testing.T) {
	serves, until := record(program.Serves), at.Add(time.Hour)
	w := waitFor(untilDrained)
	w.see(of("web", &serves))
	w.timeOut(&supervisor.Status{Programs: []supervisor.ProgramStatus{{Name: "web",
		Generations: []supervisor.GenerationStatus{
			{Number: 7, Role: program.RoleServing}, {Number: 6, Role: program.RoleKept, KeptTill: until}}}}})
	if g := w.goals[0]; g.Outcome != TimedOut ||
		!strings.Contains(g.Reason, "generation 6 is kept until "+until.Local().Format(time.TimeOnly)) {
		t.Errorf("it says %+v", g)
	}
}

func TestFinalOutcomeStaysDuringTheDrain(t *testing.T) {
	w := newWait([]supervisor.Ticket{ticket, {Program: "other", Generation: 7}}, untilServes)
	for _, r := range []program.ReloadRecord{record(program.Serves), drained(0)} {
		w.see(of("web", &r))
	}
	held, pending := record(program.Held), record(program.Pending)
	w.until = untilHeld
	w.see(of("other", &held))
	w.see(of("other", &pending))
	if w.goals[0].Outcome != program.Serves || w.goals[0].Reload.Ended.IsZero() || w.goals[1].Outcome != program.Held {
		t.Errorf("the verdicts are %+v and %+v", w.goals[0], w.goals[1])
	}
}

func TestReloadWithoutARecord(t *testing.T) {
	for name, c := range map[string]struct {
		found supervisor.ProgramStatus
		want  program.Outcome
	}{
		"follows the trial":   {supervisor.ProgramStatus{Newest: 6, Awaited: 7}, program.Pending},
		"of many reloads ago": {supervisor.ProgramStatus{Newest: 40, Awaited: 40}, Unknown},
	} {
		w := waitFor(untilServes)
		w.look(webIs(c.found))
		if got := w.goals[0].Outcome; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestUnknownGenerationIsToldWithWhatIsKnown(t *testing.T) {
	for _, u := range []Until{untilServes, untilDown} {
		w := waitFor(u)
		w.look(webIs(supervisor.ProgramStatus{State: program.Up, Newest: 6, Awaited: 6,
			Generations: []supervisor.GenerationStatus{{Number: 5, Role: program.RoleServing}}}))
		if g := w.goals[0]; g.Outcome != Unknown || g.Serving != 5 ||
			!strings.HasPrefix(g.Reason, "supervisord knows no generation 7, the newest is 6: ") {
			t.Errorf("until %s: %+v", u, g)
		}
	}
}

func TestVerdictOnStopFollowsItsRecord(t *testing.T) {
	web := func(state program.State, newest, generation, killed int, ended bool) supervisor.ProgramStatus {
		s := &program.StopRecord{Generation: generation, Killed: killed, Began: at}
		if ended {
			s.Ended = at.Add(time.Second)
		}
		return supervisor.ProgramStatus{State: state, Newest: newest, History: supervisor.History{Stop: s}}
	}
	for name, c := range map[string]struct {
		found supervisor.ProgramStatus
		want  program.Outcome
	}{
		"still goes":                      {web(program.ShuttingOff, 7, 7, 0, false), program.Pending},
		"down":                            {web(program.Down, 7, 7, 0, true), Down},
		"down by force":                   {web(program.Down, 7, 7, 2, true), Killed},
		"was down, and was started again": {web(program.Up, 8, 7, 0, true), Down},
		"was started before it was down":  {web(program.Up, 8, 7, 0, false), program.Superseded},
		"another one since":               {web(program.Down, 9, 9, 0, true), program.Superseded},
		"never ran":                       {supervisor.ProgramStatus{State: program.Down}, Down},
	} {
		w := waitFor(untilDown)
		w.look(webIs(c.found))
		if got := w.goals[0].Outcome; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	w := waitFor(untilDown)
	w.see(supervisor.Update{Program: "web", Report: program.Report{Kind: program.TrialBegan, Generation: 8}})
	if got := w.goals[0].Outcome; got != program.Superseded {
		t.Errorf("started again: %s", got)
	}
}

func TestRemovedProgramHasStopped(t *testing.T) {
	for u, want := range map[Until]program.Outcome{untilServes: program.Stopped, untilDown: Down} {
		w := waitFor(u)
		w.look(&supervisor.Status{})
		if got := w.goals[0].Outcome; got != want {
			t.Errorf("until %s: %s, want %s", u, got, want)
		}
	}
}

func TestTicketOfAnotherInstanceIsUnknown(t *testing.T) {
	for _, u := range []Until{untilServes, untilDown} {
		w := newWait([]supervisor.Ticket{{Program: "web", Generation: 7, Instance: "a"}}, u)
		w.look(&supervisor.Status{Instance: "b", Programs: []supervisor.ProgramStatus{{Name: "web", State: program.Down,
			History: supervisor.History{Reloads: []program.ReloadRecord{record(program.Serves)}}}}})
		if got := w.goals[0].Outcome; got != Unknown {
			t.Errorf("until %s: %s", u, got)
		}
	}
}

func TestWorstOutcomeDecides(t *testing.T) {
	w := newWait([]supervisor.Ticket{ticket, {Program: "other", Generation: 7}}, untilServes)
	failed, serves := record(program.WorkerDown), record(program.Serves)
	w.see(of("other", &failed))
	if len(w.pending()) == 0 {
		t.Error("one of two is not both")
	}
	w.see(of("web", &serves))
	v := w.verdict()
	if len(w.pending()) > 0 || v.Outcome != program.WorkerDown || v.Programs[0].Outcome != program.Serves ||
		v.Programs[1].Reload.Failure.Tail[0] != "last words" {
		t.Errorf("the verdict is %+v", v)
	}
}

func TestClientKnowsTheVerdictOfAStreamThatBreaksBehindIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := must.Get(net.Listen("unix", path))(t)
	serves, requests := record(program.Serves), 0
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		out := newLines(w)
		out.write(WaitLine{Tickets: []supervisor.Ticket{ticket}})
		out.write(WaitLine{Update: &supervisor.Update{Program: "web", Report: program.Report{
			Kind: program.GenerationServes, Reload: &serves}}})
		panic(http.ErrAbortHandler)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	c := NewClient(path)
	v, err := c.Await(t.Context(), OfReload(ReloadBody{}), "serves", time.Minute, func(WaitLine) {})
	if err != nil || v.Outcome != program.Serves || v.Programs[0].Reload.Replaced != 6 {
		t.Errorf("the verdict is %+v, %v", v, err)
	}
	c.Close()
	server.Close()
	if <-served; requests != 1 {
		t.Errorf("supervisord was asked %d times", requests)
	}
}

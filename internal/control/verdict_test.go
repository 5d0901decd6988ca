package control

import (
	"testing"
	"time"

	"example.org/supervisord/supervisor"
)

type kind = supervisor.ReportKind

func report(k kind, generation int) supervisor.Report {
	return supervisor.Report{Kind: k, Generation: generation}
}

func fails(step string) supervisor.Report {
	return supervisor.Report{Kind: supervisor.TrialFailed, Generation: 7, Serving: 6, Step: step, Reason: "because", Worker: 3, Tail: []string{"last words"}}
}

var serves = supervisor.Report{Kind: supervisor.GenerationServes, Generation: 7, Serving: 6, Took: time.Second}

func TestOutcomesOfWhatIsSeen(t *testing.T) {
	gone := report(supervisor.GenerationGone, 6)
	killed := gone
	killed.Killed = 2
	for name, c := range map[string]struct {
		until until
		seen  []supervisor.Report
		want  Outcome
	}{
		"nothing yet":                        {untilServes, nil, Pending},
		"a trial":                            {untilServes, []supervisor.Report{report(supervisor.TrialBegan, 7)}, Pending},
		"served":                             {untilServes, []supervisor.Report{serves}, Serves},
		"served, and still drains":           {untilDrained, []supervisor.Report{serves}, Pending},
		"served and drained":                 {untilDrained, []supervisor.Report{serves, gone}, Serves},
		"served and killed":                  {untilDrained, []supervisor.Report{serves, killed}, Killed},
		"another one has drained":            {untilDrained, []supervisor.Report{serves, report(supervisor.GenerationGone, 5)}, Pending},
		"drained while another is on trial":  {untilDrained, []supervisor.Report{serves, report(supervisor.TrialBegan, 8), gone}, Serves},
		"the first, with nothing to drain":   {untilDrained, []supervisor.Report{{Kind: supervisor.GenerationServes, Generation: 7, Took: 1}}, Serves},
		"held":                               {untilHeld, []supervisor.Report{report(supervisor.CanaryHeld, 7)}, Held},
		"held, but the end is waited for":    {untilServes, []supervisor.Report{report(supervisor.CanaryHeld, 7)}, Pending},
		"preflight":                          {untilServes, []supervisor.Report{fails("preflight")}, Preflight},
		"prepare":                            {untilServes, []supervisor.Report{fails("prepare")}, Preflight},
		"exec":                               {untilServes, []supervisor.Report{fails("exec")}, Worker},
		"start":                              {untilServes, []supervisor.Report{fails("start")}, Worker},
		"soak":                               {untilServes, []supervisor.Report{fails("soak")}, Worker},
		"ready":                              {untilServes, []supervisor.Report{fails("ready")}, Late},
		"abort":                              {untilServes, []supervisor.Report{fails("abort")}, Aborted},
		"the one before has failed":          {untilServes, []supervisor.Report{{Kind: supervisor.TrialFailed, Generation: 6, Step: "start"}}, Pending},
		"a newer one instead":                {untilServes, []supervisor.Report{report(supervisor.TrialBegan, 8)}, Superseded},
		"stopped while it was on trial":      {untilServes, []supervisor.Report{report(supervisor.TrialBegan, 7), report(supervisor.GenerationGone, 7)}, Stopped},
		"stopped before anything was there":  {untilServes, []supervisor.Report{report(supervisor.ProgramStopped, 0)}, Stopped},
		"down":                               {untilDown, []supervisor.Report{gone, report(supervisor.ProgramStopped, 0)}, Down},
		"down by force":                      {untilDown, []supervisor.Report{killed, report(supervisor.ProgramStopped, 0)}, Killed},
		"not down but started again":         {untilDown, []supervisor.Report{report(supervisor.TrialBegan, 8)}, Superseded},
		"what comes after the end is no end": {untilServes, []supervisor.Report{serves, fails("abort")}, Serves},
	} {
		course := newCourse([]supervisor.Ticket{{Program: "web", Generation: 7}}, c.until)
		for _, r := range c.seen {
			course.see(supervisor.Update{Program: "other", Report: fails("start")})
			course.see(supervisor.Update{Program: "web", Report: r})
		}
		if got := course.goals[0].Outcome; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestOutcomesOfWhatIsFound(t *testing.T) {
	now := time.Now()
	generation := func(n int, role supervisor.Role, served bool) supervisor.GenerationStatus {
		g := supervisor.GenerationStatus{Number: n, Role: role, Began: now}
		if served {
			g.Served = &now
		}
		return g
	}
	trial, serving, old := supervisor.RoleTrial, supervisor.RoleServing, supervisor.RoleDraining
	type gs = []supervisor.GenerationStatus
	for name, c := range map[string]struct {
		until    until
		replaced int
		found    supervisor.ProgramStatus
		want     Outcome
	}{
		"on trial":              {untilServes, 0, supervisor.ProgramStatus{Generations: gs{generation(7, trial, false)}}, Pending},
		"held":                  {untilHeld, 0, supervisor.ProgramStatus{Generations: gs{{Number: 7, Role: trial, Held: true}}}, Held},
		"follows another trial": {untilServes, 0, supervisor.ProgramStatus{Generations: gs{generation(6, trial, false)}}, Pending},
		"serves":                {untilServes, 0, supervisor.ProgramStatus{Generations: gs{generation(7, serving, true)}}, Serves},
		"has served":            {untilServes, 0, supervisor.ProgramStatus{Generations: gs{generation(8, serving, true), generation(7, old, true)}}, Serves},
		"serves, and drains":    {untilDrained, 0, supervisor.ProgramStatus{Generations: gs{generation(7, serving, true), generation(6, old, true)}}, Pending},
		"serves, drained, remembered": {untilDrained, 6, supervisor.ProgramStatus{Generations: gs{generation(7, serving, true)},
			Recent: []supervisor.Report{report(supervisor.GenerationGone, 6)}}, Serves},
		"serves, killed, remembered": {untilDrained, 6, supervisor.ProgramStatus{Generations: gs{generation(7, serving, true)},
			Recent: []supervisor.Report{{Kind: supervisor.GenerationGone, Generation: 6, Killed: 1}}}, Killed},
		"serves, drained, forgotten": {untilDrained, 6, supervisor.ProgramStatus{Generations: gs{generation(7, serving, true)}}, Unknown},
		"failed":                     {untilServes, 0, supervisor.ProgramStatus{LastReload: &supervisor.Outcome{Generation: 7, Report: fails("ready")}}, Late},
		"failed, and another since": {untilServes, 0, supervisor.ProgramStatus{LastReload: &supervisor.Outcome{Generation: 8, Served: true},
			Recent: []supervisor.Report{fails("start"), report(supervisor.TrialBegan, 8)}}, Worker},
		"gone without a trace": {untilServes, 0, supervisor.ProgramStatus{Generations: gs{generation(9, serving, true)}}, Unknown},
		"another is remembered": {untilServes, 0, supervisor.ProgramStatus{Generations: gs{generation(9, serving, true)},
			Recent: []supervisor.Report{report(supervisor.TrialBegan, 9)}}, Unknown},
		"stopped":                    {untilServes, 0, supervisor.ProgramStatus{State: supervisor.Down}, Stopped},
		"down":                       {untilDown, 0, supervisor.ProgramStatus{State: supervisor.Down}, Down},
		"still goes":                 {untilDown, 0, supervisor.ProgramStatus{State: supervisor.ShuttingOff}, Pending},
		"runs again":                 {untilDown, 0, supervisor.ProgramStatus{State: supervisor.StartingUp}, Superseded},
		"the next try is waited for": {untilServes, 0, supervisor.ProgramStatus{State: supervisor.Waiting, Newest: 6}, Pending},
		"a try before failed unseen": {untilServes, 0, supervisor.ProgramStatus{State: supervisor.Waiting, Newest: 7}, Unknown},
	} {
		course := newCourse([]supervisor.Ticket{{Program: "web", Generation: 7}}, c.until)
		course.goals[0].Replaced = c.replaced
		c.found.Name = "web"
		course.look(&supervisor.Status{Programs: []supervisor.ProgramStatus{c.found}})
		if got := course.goals[0].Outcome; got != c.want {
			t.Errorf("%s: %s, want %s (%+v)", name, got, c.want, course.goals[0])
		}
	}
}

func TestAProgramThatIsNoLongerThereHasStopped(t *testing.T) {
	for u, want := range map[until]Outcome{untilServes: Stopped, untilDown: Down} {
		c := newCourse([]supervisor.Ticket{{Program: "web", Generation: 7}}, u)
		c.look(&supervisor.Status{})
		if got := c.goals[0].Outcome; got != want {
			t.Errorf("until %s: %s, want %s", u, got, want)
		}
	}
}

func TestTheNumbersOfAnotherInstanceMeanNothing(t *testing.T) {
	for _, u := range []until{untilServes, untilDown} {
		c := newCourse([]supervisor.Ticket{{Program: "web", Generation: 7, Instance: "a"}}, u)
		c.look(&supervisor.Status{Instance: "b", Programs: []supervisor.ProgramStatus{{Name: "web", State: supervisor.Down,
			LastReload: &supervisor.Outcome{Generation: 7, Served: true, Report: serves}}}})
		if got := c.goals[0].Outcome; got != Unknown {
			t.Errorf("until %s: %s", u, got)
		}
	}
}

func TestTheWorstDecides(t *testing.T) {
	c := newCourse([]supervisor.Ticket{{Program: "web", Generation: 7}, {Program: "other", Generation: 7}}, untilServes)
	c.see(supervisor.Update{Program: "other", Report: fails("exec")})
	if c.ended() {
		t.Error("one of two is not both")
	}
	c.see(supervisor.Update{Program: "web", Report: serves})
	v := c.verdict()
	if !c.ended() || v.Outcome != Worker || v.Programs[0].Outcome != Serves || v.Programs[1].Tail[0] != "last words" {
		t.Errorf("the verdict is %+v", v)
	}
}

func TestAReloadOfNothingIsWell(t *testing.T) {
	if c := newCourse(nil, untilServes); !c.ended() || c.verdict().Outcome != Serves {
		t.Errorf("the verdict is %+v", c.verdict())
	}
}

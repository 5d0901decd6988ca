package page

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/browser"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/output"
)

// screen is a page in a browser, whose state the test sets.
type screen struct {
	*stage
	*browser.Page
	view atomic.Pointer[View]
}

func TestMain(m *testing.M) { os.Exit(browser.Main(m)) }

func show(t *testing.T, v *View) *screen {
	t.Helper()
	browser.Start(t)
	s := new(screen)
	s.view.Store(v)
	s.stage = showing(t, s.view.Load, tokenFile(t, token, 0o600))
	s.status.Store(v.Status)
	s.Page = browser.Open(t, "http://"+s.Addr().String()+"/")
	s.Until("the state", `document.getElementById("link")?.dataset.link === "live"`)
	s.Look(1000, "light")
	t.Cleanup(func() {
		if c := s.Complaints(); c != "" {
			t.Errorf("the browser reports errors:\n%s", c)
		}
	})
	return s
}

// becomes shows another state.
func (s *screen) becomes(v *View) {
	s.view.Store(v)
	s.status.Store(v.Status)
	s.Notify()
}

// is fails the test unless the text of an element is this.
func (s *screen) is(selector, want string) {
	s.stage.Helper()
	if got := s.Eval(fmt.Sprintf(`document.querySelector(%q)?.textContent.trim()`, selector)); got != want {
		s.stage.Errorf("%s is %q, want %q", selector, got, want)
	}
}

// has fails the test unless the text of an element contains this.
func (s *screen) has(selector, want string) {
	s.stage.Helper()
	if got := s.Eval(fmt.Sprintf(`document.querySelector(%q)?.textContent`, selector)); !strings.Contains(got, want) {
		s.stage.Errorf("%s is %q, without %q", selector, got, want)
	}
}

func (s *screen) hasNo(selector string) {
	s.stage.Helper()
	if n := s.Eval(fmt.Sprintf(`document.querySelectorAll(%q).length`, selector)); n != "0" {
		s.stage.Errorf("there are %s of %s", n, selector)
	}
}

func (s *screen) click(selector string) {
	s.stage.Helper()
	s.Until(selector, fmt.Sprintf(`Boolean(document.querySelector(%q))`, selector))
	s.Eval(fmt.Sprintf(`document.querySelector(%q).click()`, selector))
}

// answer waits for a question, chooses, and clicks a button.
func (s *screen) answer(question, choice, button string) {
	s.stage.Helper()
	s.Until("the question", fmt.Sprintf(`document.querySelector("#question[open] h2")?.textContent === %q`, question))
	s.Eval(fmt.Sprintf(`{ const field = document.querySelector("#question[open] :is(input, select)");
		if (field) field.value = %q;
		[...document.querySelectorAll("#question[open] button")].find(b => b.textContent === %q).click() }`, choice, button))
}

func (s *screen) unlock() {
	s.stage.Helper()
	s.click("#unlock")
	s.answer("Unlock", token, "Unlock")
	s.Until("that it is unlocked", `!document.getElementById("lock").hidden`)
}

// acts fails the test unless the supervisor was asked for this, and nothing else.
func (s *screen) acts(want program.Event) {
	s.stage.Helper()
	select {
	case got := <-s.acted:
		if !reflect.DeepEqual(got, want) {
			s.stage.Errorf("asked for %+v, want %+v", got, want)
		}
	case <-time.After(time.Minute):
		s.stage.Fatalf("nobody asked for %+v", want)
	}
}

func (s *screen) actsNot() {
	s.stage.Helper()
	if len(s.acted)+len(s.reloaded) > 0 {
		s.stage.Error("the page acted without an answer to its question")
	}
}

// byToken is how the record names who used the page of a test.
const byToken = "token holder from 127.0.0.1"

func TestFailedDeployDoesNotLookWell(t *testing.T) {
	s := show(t, failedDeploy())
	s.is("#program-web .badge", "deploy failed")
	s.is("title", "(1) web-3.example.org · supervisord")
	s.is("#overview", "2 programs: 1 deploy failed (web), 1 up")
	if icon := s.Eval(`document.getElementById("icon").href`); !strings.HasSuffix(icon, "/icon-bad.svg") {
		t.Errorf("the icon is %s", icon)
	}
	s.has("#program-web [data-note=failure]",
		"Generation 17 failed at start: exited with status 1. Generation 16 still serves.")
	s.has("#program-web [data-note=failure] pre", "cannot read /etc/web/database.toml: permission denied")
	if first := s.Eval(`document.querySelector("#programs > *").id`); first != "program-web" {
		t.Errorf("%s stands first", first)
	}
	s.is("#program-api .badge", "up")
}

func TestNewerStateReplacesFailure(t *testing.T) {
	s := show(t, canaryHeld())
	s.hasNo("[data-note=failure]")
	s.is("#program-web .badge", "canary held")
	s.becomes(idle())
	s.Until("that all is well", `document.querySelector("#program-web .badge").textContent === "up" && document.title `+
		`=== "web-3.example.org · supervisord"`)
	s.hasNo("[data-note]")
	if icon := s.Eval(`document.getElementById("icon").href`); !strings.HasSuffix(icon, "/icon.svg") {
		t.Errorf("the icon is %s", icon)
	}
}

func TestFailureOfTheFirstStartStaysWhileTheNextTryRuns(t *testing.T) {
	web := up("web", 1, 1, time.Minute)
	failed := failedDeploy().Status.Programs[1].Reloads[3]
	failed.Generation, failed.Replaced = 1, 0
	web.State, web.Failures, web.Generations = program.StartingUp, 1, []supervisor.GenerationStatus{}
	web.Reloads = []program.ReloadRecord{failed, {Generation: 2, Outcome: program.Pending,
		Instants: program.Instants{Began: ago(time.Second)}}}
	s := show(t, viewOf(web))
	s.is(".badge", "failing")
	s.has("[data-note=failure]", "Generation 1 failed at start: exited with status 1. Nothing serves.")
}

func TestCanaryIsDecidedOnThePage(t *testing.T) {
	s := show(t, canaryHeld())
	s.has("#program-web [data-note=canary]",
		"Generation 18 is a canary, and well. It has 5 % of the new connections; generation 16 has the rest.")
	s.click("[data-do=promote]")
	s.answer("Unlock", token, "Unlock")
	s.answer("Promote generation 18 of web?", "25%", "Cancel")
	s.click("[data-do=promote]")
	s.answer("Promote generation 18 of web?", "25%", "Promote")
	s.acts(program.Promote{Share: 2500, AskedBy: byToken})
	s.Until("the answer", `document.getElementById("said").textContent === "Promoted: web generation 3"`)
	s.click("[data-do=promote]")
	s.answer("Promote generation 18 of web?", "", "Promote")
	s.acts(program.Promote{AskedBy: byToken})
	s.click("[data-do=abort]")
	s.answer("Abort generation 18 of web?", "", "Abort")
	s.acts(program.Abort{Reason: "the page", AskedBy: byToken})
}

func TestDecisionAboutAnOldViewIsRefused(t *testing.T) {
	s := show(t, canaryHeld())
	s.unlock()
	s.click("[data-do=abort]")
	s.status.Store(idle().Status) // somebody else has decided meanwhile
	s.answer("Abort generation 18 of web?", "", "Abort")
	s.Until("the refusal", `document.getElementById("said").textContent.startsWith("generation 18 of program web is `+
		`not on trial any more. Decide again")`)
	s.actsNot()
}

func TestLateDrainIsAmber(t *testing.T) {
	v := drainingLate()
	early := v.Status.Programs[0].Generations[1].Workers
	for i := range early {
		early[i].Deadline = today.Add(time.Minute)
	}
	s := show(t, v)
	s.is(".badge", "up")
	s.hasNo("[data-note]")
	s.becomes(drainingLate())
	s.Until("that it is late", `document.querySelector(".badge").textContent === "draining late"`)
	s.has("[data-note=late-16]", "Generation 16 drains slowly: 2 workers after 20 s, with")
	s.has("[data-note=late-16]", "Then KILL.")
}

func TestManyWorkersCollapse(t *testing.T) {
	s := show(t, crashLoop())
	s.is("#program-web .badge", "crashing")
	s.has("[data-note=crashing]", "4 of 60 workers missing. Next try in")
	s.has("[data-note=crashing]", "worker 231, exited with status 2")
	s.has("[data-note=crashing] pre", "index out of range")
	s.has("#program-web .restarts", "128 restarts")
	s.is("#program-web [data-generation='17'] > .workers",
		"starting slot 5 · PID 21325"+
			s.Eval(`document.querySelector("#program-web [data-generation='17'] > .workers small").textContent`))
	s.has("#program-web [data-generation='17'] details > summary", "56 more workers: 56 ready")
	if high := s.Eval(`document.getElementById("program-web").offsetHeight < 700`); high != "true" {
		t.Error("60 workers fill the page")
	}
	s.click("#program-web [data-generation='17'] details > summary")
	s.Notify()
	s.Until("that they stay unfolded",
		`document.querySelectorAll("#program-web [data-generation='17'] .workers li").length === 57 && `+
			`document.querySelector("#program-web [data-generation='17'] details").open`)
}

func TestReloadAsksBeforeItActs(t *testing.T) {
	s := show(t, idle())
	s.hasNo("[data-do=reload], [data-do=pause]")
	s.unlock()
	s.click("#program-web [data-do=reload]")
	s.answer("Reload web?", "", "Cancel")
	s.click("#reload-all")
	s.answer("Reload all 3 programs?", "", "Cancel")
	s.actsNot()
	s.click("#program-web [data-do=reload]")
	s.answer("Reload web?", "", "Reload")
	if got := <-s.reloaded; !reflect.DeepEqual(got, []string{"web"}) {
		t.Errorf("reloaded %q", got)
	}
	s.click("#program-web [data-do=pause]")
	s.answer("Pause web?", "30s", "Pause")
	s.acts(program.Pause{For: 30 * time.Second, AskedBy: byToken})
}

func TestRollbackAndResumeAreOfferedWhereTheyApply(t *testing.T) {
	v := idle()
	web := &v.Status.Programs[1]
	web.Paused = &program.PauseTime{Since: ago(time.Second), Until: today.Add(30 * time.Second), AskedBy: "root"}
	web.Generations = append(web.Generations,
		supervisor.GenerationStatus{Number: 15, Role: program.RoleKept, Slots: 3,
			GenerationTimes: program.GenerationTimes{Began: ago(time.Hour)},
			KeptTill:        today.Add(10 * time.Minute),
			Workers:         workersOf(150, 3, program.Kept, ago(time.Minute))})
	s := show(t, v)
	s.is("#program-web .badge", "paused")
	s.hasNo("#program-api [data-do=rollback], #program-api [data-do=resume], #program-web [data-do=pause]")
	s.click("#program-web [data-do=rollback]")
	s.answer("Unlock", token, "Unlock")
	s.answer("Roll web back to generation 15?", "", "Roll back")
	s.acts(program.Rollback{AskedBy: byToken})
	s.click("#program-web [data-do=resume]")
	s.answer("Resume web?", "", "Resume")
	s.acts(program.Unpause{AskedBy: byToken})
}

func TestProgramsAreStartedStoppedAndScaled(t *testing.T) {
	v := idle()
	v.Status.Programs[0].State, v.Status.Programs[0].Generations = program.Down, []supervisor.GenerationStatus{}
	s := show(t, v)
	const all = "[data-do=start], [data-do=stop], [data-do=restart], [data-do=scale]"
	s.hasNo(all)
	s.unlock()
	s.hasNo("#program-api :is([data-do=stop], [data-do=restart], [data-do=scale]), #program-web [data-do=start]")
	s.click("#program-web [data-do=stop]")
	s.answer("Stop web?", "", "Cancel")
	s.actsNot()
	s.click("#program-api [data-do=start]")
	s.answer("Start api?", "", "Start")
	s.acts(program.Start{AskedBy: byToken})
	s.click("#program-web [data-do=stop]")
	s.Until("what becomes of clients",
		`document.querySelector("#question[open] p")?.textContent.endsWith("New connections: wait.")`)
	s.answer("Stop web?", "", "Stop")
	s.acts(program.Stop{AskedBy: byToken})
	s.click("#program-web [data-do=restart]")
	s.answer("Restart web?", "", "Restart")
	s.acts(program.Stop{AskedBy: byToken})
	s.acts(program.Start{AskedBy: byToken})
	s.click("#program-web [data-do=scale]")
	s.Until("the number now", `document.querySelector("#question[open] input")?.value === "3"`)
	s.answer("Scale web?", "7", "Scale")
	s.acts(program.Scale{Workers: 7, AskedBy: byToken})
	s.click("#lock")
	s.Until("that they are gone", `document.querySelectorAll("`+all+`").length === 0`)
}

func TestTwentyProgramsFitOneScreen(t *testing.T) {
	v := wall()
	s := show(t, v)
	s.Look(1280, "light")
	const end = `Math.max(...[...document.querySelectorAll("#programs > *")].map(e => e.getBoundingClientRect().bottom))`
	if n, low := s.Eval(`document.querySelectorAll(".tile").length`), s.Eval(end+" < 800"); n != "20" || low != "true" {
		t.Errorf("%s tiles end at %s, want 20 above 800", n, s.Eval(end))
	}
	s.click("#program-mail")
	s.Until("its card", `document.querySelector("article#program-mail details")?.open === true && `+
		`document.activeElement.dataset.do === "close"`)
	s.Notify()
	s.Until("that the rest are tiles", `document.querySelectorAll(".tile").length === 19`)
	s.click("#program-mail [data-do=close]")
	s.Until("its tile", `document.activeElement.id === "program-mail" && document.querySelectorAll(".tile").length === 20`)

	s.becomes(wallWithFailure())
	s.Until("the failure and the canary first",
		`[...document.querySelectorAll("#programs > *")].slice(0, 2).map(e => e.id + " " + e.nodeName).join() === `+
			`"program-billing ARTICLE,program-web ARTICLE"`)
	if n := s.Eval(`document.querySelectorAll(".tile").length`); n != "18" {
		t.Errorf("%s tiles", n)
	}
	s.is("#program-worker .badge", "stopped")
	s.is("#program-search .badge", "reloading")
}

func TestSearchFindsProgramsByNameAndState(t *testing.T) {
	s := show(t, wallWithFailure())
	s.Press("/")
	s.Until("the field", `document.activeElement.id === "search"`)
	names := func(want string) {
		t.Helper()
		s.Until(want, fmt.Sprintf(`[...document.querySelectorAll("#programs > *")].map(e => e.dataset.program || `+
			`e.textContent).join() === %q`, want))
	}
	for _, c := range "mail" {
		s.Press(string(c))
	}
	names("mail,mail-queue")
	s.Notify()
	names("mail,mail-queue")
	s.Press("/") // in a field it is a character
	names(`No program has "mail/" in its name or its state.`)
	s.Eval(`{ const e = document.getElementById("search"); e.value = "Failed"; e.dispatchEvent(new Event("input")) }`)
	names("billing")
	s.becomes(idle()) // so few that there is no search
	names("api,web,worker")
}

func TestSparklinesGoBackTenMinutesAndSurviveAReload(t *testing.T) {
	v := wall()
	s := show(t, v)
	s.hasNo(".spark")
	for i := range 3 {
		v = wall()
		v.Now = today.Add(time.Duration(i+1) * 5 * time.Minute)
		s.becomes(v)
		s.Until("the time", fmt.Sprintf(`document.getElementById("clock").textContent.startsWith("2026-11-22 15:%02d")`,
			9+5*i))
	}
	points := func(want string) {
		t.Helper()
		s.Until(want, fmt.Sprintf(`document.querySelectorAll(".tile .spark").length === 60 && `+
			`document.querySelector("#program-mail polyline").getAttribute("points").split(" ").length === %s`, want))
	}
	points("2") // what is ten minutes old has gone
	s.has("#program-mail title", "connections, last ten minutes: ")
	s.Eval(`location.reload()`)
	s.Until("the state again", `document.getElementById("link")?.dataset.link === "live"`)
	points("2")
	if n := s.Eval(`sessionStorage.length`); n != "0" {
		t.Errorf("%s items are stored while the page is shown", n)
	}
}

// remembers gives the page ten minutes of history, as if it had been open.
func (s *screen) remembers(v *View) {
	s.stage.Helper()
	history := map[string][][4]float64{}
	for k, p := range v.Status.Programs {
		for i := range 120 {
			// The last value is what the workers use now.
			wave := 1 + .3*math.Sin(float64(119-i)/(5+float64(k))) + .1*math.Sin(float64((119-i)*(k+3))/9)
			var now [3]float64
			for _, g := range p.Generations {
				for _, w := range g.Workers {
					now[0], now[1], now[2] = now[0]+float64(*w.Connections), now[1]+*w.CPUPercent, now[2]+float64(*w.Memory)
				}
			}
			history[p.Name] = append(history[p.Name], [4]float64{
				float64(v.Now.Add(time.Duration(i-120) * 5 * time.Second).UnixMilli()), math.Round(
					now[0] * wave), now[1] * wave * wave, now[2] * (.8 + float64(i)/600)})
		}
	}
	text, err := json.Marshal(history)
	if err != nil {
		s.stage.Fatal(err)
	}
	s.Eval(`location.assign("healthz")`)
	s.Until("another page", `document.body?.textContent.trim() === "ok"`)
	s.Eval(fmt.Sprintf(`sessionStorage.setItem("history", %q)`, text))
	s.Eval(`location.assign("/")`)
	s.Until("the state", `document.getElementById("link")?.dataset.link === "live"`)
}

func TestUnlockAndLock(t *testing.T) {
	s := show(t, idle())
	s.click("#unlock")
	s.answer("Unlock", "wrong-token-0123456789", "Unlock")
	s.Until("the refusal", `document.getElementById("said").textContent === "wrong token" && `+
		`document.getElementById("lock").hidden`)
	if err := os.Chmod(s.TokenFile, 0o604); err != nil {
		t.Fatal(err)
	}
	s.click("#unlock")
	s.answer("Unlock", token, "Unlock")
	s.Until("what is wrong", `document.getElementById("said").textContent.endsWith("must not be readable or writable `+
		`by others: chmod o= `+s.TokenFile+`")`)
	if err := os.Chmod(s.TokenFile, 0o600); err != nil {
		t.Fatal(err)
	}
	s.unlock()
	s.Until("the buttons", `document.querySelectorAll("[data-do=reload]").length === 3`)
	s.click("#lock")
	s.Until("that they are gone", `document.querySelectorAll("[data-do=reload]").length === 0 && `+
		`!document.getElementById("unlock").hidden && sessionStorage.length === 0`)
	if left := s.Eval(`document.querySelectorAll("#question").length`); left != "0" {
		t.Error("the question is left in the page")
	}
}

func TestOutputNeedsTheToken(t *testing.T) {
	s := show(t, idle())
	log := output.NewLog(nil, nil)
	s.log.Store(log)
	log.Of(161)("stderr", 21227, []byte("\x1b[31mdatabase is slow\x1b[0m\n"))
	s.hasNo("[data-key^=output-]")
	s.unlock()
	s.click("[data-key=output-web] > summary")
	s.Until("the output", `document.querySelector("[data-key=output-web] pre")?.textContent.endsWith(" 21227 database `+
		`is slow")`)
	log.Of(161)("stderr", 21227, []byte("database is well\n"))
	s.Notify()
	s.Until("what follows", `document.querySelector("[data-key=output-web] pre").textContent.endsWith(" 21227 database `+
		`is well")`)
	s.log.Store(nil)
	s.Notify()
	s.Until("why there is none", `document.querySelector("[data-key=output-web] pre").textContent.endsWith("no output `+
		`is captured")`)
}

func TestEventsOfOneProgram(t *testing.T) {
	s := show(t, idle())
	s.is("#recent", s.Eval(`[...document.querySelectorAll("#recent li")].map(e => e.textContent).join("")`))
	if n := s.Eval(`document.querySelectorAll("#recent li").length`); n != "3" {
		t.Errorf("%s events", n)
	}
	s.click("#program-worker [data-do=events]")
	s.Until("its events", `document.getElementById("of").value === "worker" && document.querySelectorAll("#recent `+
		`li").length === 2 && location.hash === "#events"`)
	if red := s.Eval(`getComputedStyle(document.querySelector("#recent [data-id=worker_died]")).color`); red != s.Eval(
		`getComputedStyle(document.querySelector("#recent .failed")).color`) ||
		red == s.Eval(`getComputedStyle(document.body).color`) {
		t.Errorf("a crash has the colour %s", red)
	}
	s.click("#failures")
	s.Until("failures only", `document.querySelectorAll("#recent li").length === 1`)
	v := failedDeploy() // one event is of the day before
	s.becomes(v)
	s.click("#program-web [data-do=events]")
	s.click("#failures")
	s.Until("the date", `document.querySelector("#recent li:last-child time")?.textContent === "2026-11-21 13:04:05"`)
	s.is("#recent li:first-child time", "15:03:02")
}

func TestOlderReloadsAreListed(t *testing.T) {
	v := viewOf(up("web", 83, 3, time.Hour))
	web := &v.Status.Programs[0]
	for i := range 80 {
		web.Past = append(web.Past, &program.ReloadRecord{Generation: i + 1, Replaced: i, Outcome: program.Serves,
			AskedBy: "signal HUP", Instants: program.Instants{Decided: ago(time.Duration(30*24-i) * time.Hour)},
			Durations: program.Durations{Took: time.Second}})
	}
	web.Past[78].Outcome = program.NotReady
	web.Past[78].Failure = &program.Failure{Step: "ready", Reason: "not ready after 20s"}
	s := show(t, v)
	s.click("#program-web [data-do=history]")
	s.Until("the older ones", `document.querySelectorAll("[data-past=web] li").length === 80`)
	s.is("[data-past=web] li:first-child", "2026-10-26 22:04:05 · 79 → 80 · serves after 1.0 s · by signal HUP")
	s.is("[data-past=web] li.failed",
		"2026-10-26 21:04:05 · 78 → 79 · not ready after 1.0 s · by signal HUP · ready: not ready after 20s")
}

func TestOldStateDoesNotLookWell(t *testing.T) {
	s := show(t, idle())
	s.http.Close()
	s.Until("that the connection is lost",
		`document.title.startsWith("(offline) ") && document.getElementById("icon").href.endsWith("/icon-offline.svg")`)
	s.is("#link", "no connection; this is how it was")
}

// The order in which Tab goes through the page, with what needs a decision first; an update does not move the focus.
func TestPageNeedsOnlyAKeyboard(t *testing.T) {
	s := show(t, canaryHeld())
	focus := func() string {
		return s.Eval(`(e => e.id || e.dataset.key || e.className || e.textContent)(document.activeElement)`)
	}
	var order []string
	for range 8 { // beyond the first table
		s.Press("Tab")
		order = append(order, s.Eval(`document.activeElement.innerText || document.activeElement.id`))
	}
	if got, want := strings.Join(order[:6],
		"; "), "web; Unlock actions; Events; Promote; Abort; Workers, listeners, reloads"; got != want {
		t.Errorf("Tab goes to %s, want %s", got, want)
	}
	for focus() != "promote-web" {
		s.Press("Shift+Tab")
	}
	v := canaryHeld()
	v.Status.Programs = append(v.Status.Programs, failedDeploy().Status.Programs[1]) // stands before the canary
	v.Status.Programs[2].Name = "shop"
	s.becomes(v)
	s.Until("the other program", `document.querySelector("#programs > *").id === "program-shop"`)
	if got := focus(); got != "promote-web" {
		t.Errorf("after an update the focus is at %s", got)
	}
	s.Press("Enter")
	s.Until("the token's field", `document.activeElement.name === "token"`)
	for _, c := range token {
		s.Press(string(c))
	}
	s.Press("Enter")
	s.Until("the question",
		`document.querySelector("#question[open] h2")?.textContent === "Promote generation 18 of web?"`)
	s.Press("Escape")
	s.Until("that it is closed", `!document.querySelector("#question[open]")`)
	s.actsNot()
	s.Eval(`document.querySelector("[data-key=promote-web]").focus()`)
	s.Press("Enter")
	s.Until("the question", `document.activeElement.name === "canary"`)
	s.Press("Tab")
	if got := s.Eval(`document.activeElement.textContent`); got != "Cancel" {
		t.Errorf("after the choice comes %s", got)
	}
	s.Press("Tab")
	s.Press("Enter")
	s.acts(program.Promote{AskedBy: byToken})
}

// The states of the screenshots, and others.
var states = map[string]func() *View{"idle": idle, "failed": failedDeploy, "canary": canaryHeld,
	"draining": drainingLate, "crashing": crashLoop, "wall": wall, "wall-failed": wallWithFailure}

func TestPageFits400Pixels(t *testing.T) {
	for name, view := range states {
		t.Run(name, func(t *testing.T) {
			s := show(t, view())
			s.Look(400, "light")
			s.unlock()
			s.Look(400, "dark")
		})
	}
}

// axe finds what keeps people from using a page. scripts/test fetches it.
const (
	axeVersion = "4.14.1"
	axeSum     = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
)

func axe(t *testing.T) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(dir, "supervisord-servers", "axe-core-"+axeVersion+".js")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is missing; scripts/test fetches it", path)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(text)); err != nil || sum != axeSum {
		t.Fatalf("%s is not axe-core %s: %v %s", path, axeVersion, err, sum)
	}
	return string(text)
}

func (s *screen) accessible(what string) {
	s.stage.Helper()
	var found []struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML, FailureSummary string }
	}
	text := s.Eval(`axe.run().then(r => JSON.stringify(r.violations))`)
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		s.stage.Fatal(err)
	}
	for _, f := range found {
		s.stage.Errorf("%s: %s (%s): %s: %d, such as %s\n%s", what, f.ID, f.Impact, f.Help, len(f.Nodes), f.Nodes[0].HTML,
			f.Nodes[0].FailureSummary)
	}
}

func TestPageIsAccessible(t *testing.T) {
	source := axe(t)
	for name, view := range states {
		t.Run(name, func(t *testing.T) {
			s := show(t, view())
			s.Eval(source + "; true")
			if strings.HasPrefix(name, "wall") { // its cards are those of the other states
				s.accessible(name + " light")
				s.Look(400, "dark")
				s.unlock()
				s.accessible(name + " dark 400 unlocked")
				return
			}
			for _, colours := range []string{"light", "dark"} {
				for _, width := range []int{1000, 400} {
					s.Look(width, colours)
					s.accessible(fmt.Sprint(name, " ", colours, " ", width))
				}
			}
			s.unlock()
			s.click("details [data-do=choose]")
			s.click("details [data-do=history]")
			s.Until("the older reloads", `Boolean(document.querySelector("[data-past], [data-do=history] ~ .summary, .scroll `+
				`~ .summary"))`)
			s.Eval(`document.querySelectorAll("details").forEach(d => d.open = true)`)
			s.accessible(name + " unlocked, dark")
			s.click("[data-do=reload]")
			s.Until("the question", `Boolean(document.querySelector("#question[open] h2"))`)
			s.accessible(name + " with a question, dark")
			s.Look(1000, "light")
			s.accessible(name + " with a question, light")
		})
	}
}

func TestPageStaysSmall(t *testing.T) {
	const most = 68 << 10
	files, err := static.ReadDir("static")
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
	}
	if sum > most {
		t.Errorf("the page has %d bytes, at most %d are allowed", sum, most)
	}
}

var screenshots = flag.String("screenshots", "", "write the screenshots of the documentation to this directory")

// TestScreenshots makes docs/images: go test ./internal/observe/page -run TestScreenshots -args -screenshots
// "$PWD/docs/images"
func TestScreenshots(t *testing.T) {
	for _, name := range []string{"idle", "failed", "canary", "wall"} {
		v := states[name]()
		s := show(t, v)
		s.remembers(v)
		for _, colours := range []string{"light", "dark"} {
			s.Look(1000, colours)
			s.Until("a picture", `document.images[0].complete`)
			picture := s.Picture("webp")
			if n := len(picture); n < 5<<10 || n > 150<<10 {
				t.Errorf("%s, %s: a picture of %d bytes", name, colours, n)
			}
			if *screenshots == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(*screenshots, "page-"+name+"-"+colours+".webp"), picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

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
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"example.org/supervisord/internal/lab/browser"
	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/output"
)

// screen is a page in a browser, whose state the test sets.
type screen struct {
	*stage
	*browser.Page
	view atomic.Pointer[View]
}

func TestMain(m *testing.M) { os.Exit(leftover.Run(func() int { return browser.Main(m) })) }

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

// TestLooks plays testdata/looks/*.txt. Each line is a step, whose arguments "|" separates:
//
//	show STATE, becomes STATE   opens the page in one of states; shows another one
//	behind STATE                so it is, but the page does not know yet
//	is SELECTOR | TEXT          the text of an element; has: a part of it; no SELECTOR: there is none
//	true JS, until JS           an expression is true, or gets true; js JS: only evaluates it
//	click SELECTOR, press KEYS, look COLOURS, unlock, notify
//	answer QUESTION | CHOICE | BUTTON
//	acts EVENT, reloads LIST    what the supervisor was asked for: "acts nothing"
//	chmod MODE, log TEXT, log off, close   the file of the token, a worker's output, the server
func TestLooks(t *testing.T) {
	datadriven.Walk(t, "testdata/looks", func(t *testing.T, path string) {
		var s *screen
		n := 0
		for line := range strings.Lines(string(must.Get(os.ReadFile(path))(t))) {
			n++
			verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			args := append(strings.Split(strings.ReplaceAll(rest, "TOKEN", token), "|"), "", "")
			for i := range args {
				args[i] = strings.TrimSpace(args[i])
			}
			switch verb {
			case "#":
				continue
			case "show":
				s = show(t, states[rest]())
			default:
				if wrong := s.step(verb, rest, args); wrong != "" {
					t.Errorf("%s:%d: %s: %s", path, n, strings.TrimSpace(line), wrong)
				}
			}
		}
	})
}

// step does a step, and says what is wrong.
func (s *screen) step(verb, rest string, args []string) string {
	text := fmt.Sprintf(`document.querySelector(%q)?.textContent`, args[0])
	wrong := func(is bool, got string) string {
		if is {
			return ""
		}
		return fmt.Sprintf("it is %q", got)
	}
	switch verb {
	case "becomes":
		s.becomes(states[rest]())
	case "behind":
		s.status.Store(states[rest]().Status)
	case "is":
		got := s.Eval(text + ".trim()")
		return wrong(got == args[1], got)
	case "has":
		got := s.Eval(text)
		return wrong(strings.Contains(got, args[1]), got)
	case "no":
		got := s.Eval(fmt.Sprintf(`document.querySelectorAll(%q).length`, rest))
		return wrong(got == "0", got)
	case "true":
		got := s.Eval(rest)
		return wrong(got == "true", got)
	case "until":
		s.Until(rest, rest)
	case "acts", "reloads":
		wait := time.Minute
		if rest == "nothing" {
			wait = 0
		}
		got := s.asked(wait)
		return wrong(got == rest, got)
	default:
		return s.does(verb, rest, args)
	}
	return ""
}

// does does what a user does, or what happens on the server.
func (s *screen) does(verb, rest string, args []string) string {
	switch verb {
	case "js":
		s.Eval(rest)
	case "click":
		s.click(rest)
	case "press":
		for key := range strings.FieldsSeq(rest) {
			s.Press(key)
		}
	case "look":
		s.Look(1280, rest)
	case "unlock":
		s.unlock()
	case "notify":
		s.Notify()
	case "answer":
		s.answer(args[0], args[1], args[2])
	case "chmod":
		mode, err := strconv.ParseUint(rest, 8, 12)
		if err := errors.Join(err, os.Chmod(s.TokenFile, os.FileMode(mode))); err != nil {
			return err.Error()
		}
	case "log":
		s.logs(rest)
	case "close":
		s.http.Close()
	default:
		return "there is no such step"
	}
	return ""
}

// asked returns what the supervisor was asked for, or "nothing", for which it does not wait.
func (s *screen) asked(wait time.Duration) string {
	select {
	case event := <-s.acted:
		return told(event)
	case programs := <-s.reloaded:
		return fmt.Sprint(programs)
	case <-time.After(wait):
		return "nothing"
	}
}

// told returns the name of an event and the fields that it sets.
func told(event program.Event) string {
	v := reflect.ValueOf(event)
	words := v.Type().Name()
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			words += fmt.Sprintf(" %s=%v", v.Type().Field(i).Name, v.Field(i))
		}
	}
	return words
}

// logs has a worker write a line, unless it is "off": then no output is captured.
func (s *screen) logs(line string) {
	if line == "off" {
		s.log.Store(nil)
		return
	}
	if s.log.Load() == nil {
		s.log.Store(output.NewLog(nil, nil))
	}
	s.log.Load().Of(161)("stderr", 21227, []byte(strings.ReplaceAll(line, `\x1b`, "\x1b")+"\n"))
}

func TestSparklinesGoBackTenMinutesAndSurviveAReload(t *testing.T) {
	v := wall()
	s := show(t, v)
	s.Until("no line yet", `document.querySelectorAll(".spark").length === 0`)
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
	s.Until("its title", `document.querySelector("#program-mail title")?.textContent.includes("connections, last ten `+
		`minutes: ")`)
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
	text := must.Get(json.Marshal(history))(s.stage.T)
	s.Eval(`location.assign("healthz")`)
	s.Until("another page", `document.body?.textContent.trim() === "ok"`)
	s.Eval(fmt.Sprintf(`sessionStorage.setItem("history", %q)`, text))
	s.Eval(`location.assign("/")`)
	s.Until("the state", `document.getElementById("link")?.dataset.link === "live"`)
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
		t.Logf("%s is missing; scripts/test fetches it", path)
		return "var axe = {run: async () => ({violations: []})}"
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
	must.Do(s.stage.T, json.Unmarshal([]byte(text), &found))
	for _, f := range found {
		s.stage.Errorf("%s: %s (%s): %s: %d, such as %s\n%s", what, f.ID, f.Impact, f.Help, len(f.Nodes), f.Nodes[0].HTML,
			f.Nodes[0].FailureSummary)
	}
}

// TestEveryStateFitsAndIsAccessible: Look reports a page that is wider than its window. Its colours and widths come in
// pairs, because each run of axe takes as long as all the rest; nothing on the wall is not on the one with failures.
func TestEveryStateFitsAndIsAccessible(t *testing.T) {
	source := axe(t)
	for _, name := range []string{"idle", "failed", "canary", "draining", "crashing", "wall-failed"} {
		t.Run(name, func(t *testing.T) {
			s := show(t, states[name]())
			s.Eval(source + "; true")
			s.Look(400, "light")
			s.Look(1000, "light")
			s.accessible("light")
			s.Look(400, "dark")
			s.unlock()
			if !strings.HasPrefix(name, "wall") { // its cards are those of the other states
				s.click("details [data-do=choose]")
				s.click("details [data-do=history]")
				s.Until("the older reloads", `Boolean(document.querySelector("[data-past], [data-do=history] ~ .summary, `+
					`.scroll ~ .summary"))`)
				s.Eval(`document.querySelectorAll("details").forEach(d => d.open = true)`)
			}
			s.accessible("unlocked, dark, 400 wide")
			if strings.HasPrefix(name, "wall") {
				return
			}
			s.click("[data-do=reload]")
			s.Until("the question", `Boolean(document.querySelector("#question[open] h2"))`)
			s.accessible("with a question, dark, 400 wide")
			s.Look(1000, "light")
			s.accessible("with a question, light")
		})
	}
}

func TestPageStaysSmall(t *testing.T) {
	const most = 68 << 10
	files := must.Get(static.ReadDir("static"))(t)
	var sum int64
	for _, f := range files {
		info := must.Get(f.Info())(t)
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
	names := []string{"idle", "failed", "canary", "wall"}
	if *screenshots == "" {
		names = names[3:]
	}
	for _, name := range names {
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
			must.Do(t, os.WriteFile(filepath.Join(*screenshots, "page-"+name+"-"+colours+".webp"), picture, 0o644))
		}
	}
}

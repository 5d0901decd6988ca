package prove

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/process"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/ready"
)

// at returns a time in the proofs below, which start at 0.
func at(millis int) time.Time { return time.UnixMilli(int64(millis)) }

func TestOldWorkersThatLive(t *testing.T) {
	st := &supervisor.Status{Programs: []supervisor.ProgramStatus{{Generations: []supervisor.GenerationStatus{{}, {},
		{}}}}}
	for i, role := range []program.Role{program.RoleServing, program.RoleDraining, program.RoleKept} {
		g := &st.Programs[0].Generations[i]
		g.Role = role
		g.Workers = make([]supervisor.WorkerStatus, 1)
		g.Workers[0].PID = 10 + i
	}
	if got := oldWorkers(st); !slices.Equal(got, []int{11}) {
		t.Errorf("left %v, want 11", got)
	}
}

// example returns a proof of 1 s with a reload that begins at 300 ms, serves at 400 ms and settles at 600 ms.
func example() *proof {
	u, _ := url.Parse("http://127.0.0.1:8080/")
	r := &proof{
		Plan: Plan{Rate: 100, Reloads: 1}, program: &config.Program{Name: "web"}, target: &endpoint{url: u, network: "tcp"},
		supervisord: &supervised{pid: 1 << 30, events: &process.Follower{}}, began: at(0), took: time.Second,
		left:    leftovers{before: map[string]int{"socket": 3, "pipe": 1}, after: map[string]int{"socket": 3, "pipe": 1}},
		history: newHistory("web"),
	}
	record(r, "2 serves 400 600")
	r.history.reloads = []*asked{{at: at(300), generation: 2}}
	for i := range 100 {
		r.tally.add(load.Attempt{At: time.Duration(i) * 10 * time.Millisecond,
			Latency: time.Duration(i+1) * 100 * time.Microsecond})
	}
	return r
}

// TestFindings reads testdata/findings; with -rewrite it writes the answers. A line is a proof of its own, and so is a
// line of the answer; steps have semicolons between them, times are milliseconds.
//
//	lost AT KIND [reused] [took=T] [xN] [TEXT]   requests; AT may be FROM..TO, one in 50 ms; told AT..AT a worker is told
//	ready AT, killed AT, died AT                 a worker is               to stop, and is gone
//	record N OUTCOME DECIDED ENDED               of the reload to generation N; 0 is never; with quiet=T, unread=N, kept
//	reload, answer N, refused TEXT               another reload is asked for, and is answered
//	took T, interrupted N, pipes N               the load lasted so long, was to have N reloads; N descriptors are left
//	run COMMAND, stop SIGNAL, stop-reload SIGNAL, timeout T, listen HANDOVER, delay    the program
//
// "causes" is the verdict with its causes and where the first loss was, "reloads" what people read about reloads and
// warnings, "remedies" what they read about the server and the causes, "text" all that they read; "history" is how
// the reloads went, and begins without the one of the example.
func TestFindings(t *testing.T) {
	datadriven.Walk(t, "testdata/findings", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				r := example()
				if d.Cmd == "history" {
					r.history = newHistory("web")
				}
				for step := range strings.SplitSeq(line, ";") {
					verb, rest, _ := strings.Cut(strings.TrimSpace(step), " ")
					if steps[verb] == nil {
						d.Fatalf(t, "there is no step %q", verb)
					}
					steps[verb](r, rest)
				}
				fmt.Fprintln(&b, answers[d.Cmd](r))
			}
			return b.String()
		})
	})
}

// record adds the record of a reload.
func record(r *proof, text string) {
	w := strings.Fields(text)
	n, decided, ended := number(w[0]), number(w[2]), number(w[3])
	rec := &program.ReloadRecord{Generation: n, Replaced: n - 1, Outcome: program.Outcome(w[1])}
	if decided > 0 {
		rec.Decided = at(decided)
	}
	if ended > 0 {
		rec.Ended = at(ended)
	}
	if rec.Outcome.Failed() {
		rec.Failure = &program.Failure{Step: "start", Reason: "exited with status 1"}
	}
	name := "web"
	for _, word := range w[4:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "kept": // the generation before
			rec.KeptTill = at(60_000)
		case "quiet":
			rec.Quiet = at(number(value)).Sub(at(0))
		case "unread":
			rec.Left = &program.Look{Unread: number(value)}
		case "of": // another program
			name = value
		}
	}
	r.history.add(&supervisor.Update{Program: name, Report: program.Report{Reload: rec}})
}

func number(text string) int { return must.Be(strconv.Atoi(text)) }

// lost adds requests that were lost at this time, or each 50 ms between two.
func lost(r *proof, text string) {
	w := strings.Fields(text)
	from, to, many := strings.Cut(w[0], "..")
	l := load.Lost{Kind: load.LossKind(w[1])}
	took, times, words := time.Millisecond, 1, []string{}
	for _, word := range w[2:] {
		if t, is := strings.CutPrefix(word, "took="); is {
			took = at(number(t)).Sub(at(0))
		} else if n, is := strings.CutPrefix(word, "x"); is {
			times = number(n)
		} else if word == "reused" {
			l.Reused = true
		} else {
			words = append(words, word)
		}
	}
	l.Text = cmp.Or(strings.Join(words, " "), w[1])
	if !many {
		to = from
	}
	for millis := number(from); millis <= number(to); millis += 50 {
		for range times {
			r.tally.add(load.Attempt{At: at(millis).Sub(at(0)) - took, Latency: took, Lost: &l})
		}
	}
}

// happens is a step in which something happens to a worker.
func happens(kind program.ReportKind) func(r *proof, millis string) {
	return func(r *proof, millis string) {
		r.history.add(&supervisor.Update{Time: at(number(millis)), Program: "web",
			Report: program.Report{Kind: kind, Worker: 1}})
	}
}

func signal(name string) syscall.Signal { return unix.SignalNum("SIG" + name) }

var steps = map[string]func(r *proof, text string){
	"lost": lost, "record": record, "ready": happens(program.WorkerReady), "killed": happens(program.WorkerKilled),
	"died": happens(program.WorkerDied),
	"told": func(r *proof, text string) {
		told, gone, _ := strings.Cut(text, "..")
		happens(program.WorkerStopping)(r, told)
		happens(program.WorkerStopped)(r, gone)
	},
	"reload": func(r *proof, _ string) {
		r.history.reloads = append(r.history.reloads, &asked{at: at(100 * len(r.history.reloads))})
	},
	"answer":      func(r *proof, n string) { r.history.answer(reloaded{number(n), nil}) },
	"refused":     func(r *proof, why string) { r.history.answer(reloaded{0, errors.New(why)}) },
	"took":        func(r *proof, millis string) { r.took = at(number(millis)).Sub(at(0)) },
	"interrupted": func(r *proof, n string) { r.interrupted, r.Reloads = true, number(n) },
	"pipes":       func(r *proof, n string) { r.left.after["pipe"] += number(n) },
	"run":         func(r *proof, command string) { r.program.Command = strings.Fields(command) },
	"stop": func(r *proof, name string) {
		r.program.Stop.Steps = append(r.program.Stop.Steps, config.StopStep{Signal: signal(name)})
	},
	"stop-reload": func(r *proof, name string) { r.program.Stop.ReloadSignal = signal(name) },
	"timeout": func(r *proof, millis string) {
		r.program.Stop.Steps = []config.StopStep{{Wait: at(number(millis)).Sub(at(0))}}
	},
	"listen": func(r *proof, how string) { r.program.Listen = []socket.Spec{{Handover: socket.Handover(how)}} },
	"delay":  func(r *proof, _ string) { r.program.Ready.Method = ready.Delay },
}

// answers are what the commands of testdata/findings print of a proof.
var answers = map[string]func(r *proof) string{
	"causes": func(r *proof) string {
		v := r.findings()
		text := v.Verdict + ": " + v.Headline
		for i, c := range v.Causes {
			if i > 0 {
				text += "; " + c.Headline
			}
			text += fmt.Sprintf(" (%d lost)", c.Lost)
		}
		if len(v.Losses) > 0 {
			text = fmt.Sprintf("%s %d, %s", v.Losses[0].Stage, v.Losses[0].Reload, text)
		}
		return text
	},
	"reloads": func(r *proof) string {
		v := r.findings()
		var b strings.Builder
		v.textReloads(func(format string, args ...any) { fmt.Fprintf(&b, format+" ", args...) })
		return strings.Join(append(strings.Fields(b.String()), v.Warnings...), " ")
	},
	"remedies": func(r *proof) string {
		v, lines := r.findings(), []string{}
		if v.Server != nil {
			lines = append(lines, v.Server.Name+" ("+v.Server.Page+"): "+v.Server.Remedy)
		}
		for _, c := range v.Causes {
			lines = append(lines, c.Cause, " -> "+c.Remedy)
		}
		return strings.Join(lines, "\n")
	},
	"text": func(r *proof) string {
		var b strings.Builder
		if err := r.findings().Text(&b, terminal.Palette{}); err != nil {
			return err.Error()
		}
		return strings.ReplaceAll(b.String(), "\n\n", "\n")
	},
	"history": func(r *proof) string {
		var all []string
		for _, a := range r.history.reloads {
			outcome, reason, _ := r.history.outcome(a)
			all = append(all, strings.TrimSuffix(outcome+" "+reason, " "))
		}
		if r.history.allSettled() {
			all = append(all, "settled")
		}
		if why := r.history.startFailed(); why != "" {
			all = append(all, "does not start: "+why)
		}
		return strings.Join(all, ", ")
	},
}

func TestTargets(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", ":80": "127.0.0.1:80", "0.0.0.0:80": "127.0.0.1:80", "[::]:80": "[::1]:80",
		"[::1]:80":     "[::1]:80",
		"localhost:80": "127.0.0.1:80", "127.8.8.8:80": "127.8.8.8:80", "unix:/run/x": "/run/x", "unix:@x": "@x",
		"192.0.2.1:80": "", "example.org:80": "", "udp:127.0.0.1:53": "", "127.0.0.1:0": "",
	} {
		all, err := targets(&config.Program{Name: "web", Listen: []socket.Spec{{Name: "a", Address: addr(address)}}},
			"/p?q=1")
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: %v, want an error", address, all[0])
		case want != "" && (err != nil || all[0].address != want || all[0].url.RequestURI() != "/p?q=1"):
			t.Errorf("%s: %v, %v, want %s", address, all, err, want)
		}
	}
}

func TestJSONHasEmptyLists(t *testing.T) {
	text := must.Get(json.Marshal(example().findings()))(t)
	for _, key := range []string{"reasons", "losses", "causes", "died", "old", "left_behind"} {
		if !bytes.Contains(text, []byte(`"`+key+`":[]`)) {
			t.Errorf("%s is not an empty list in %s", key, text)
		}
	}
}

func TestPlotOfNothingIsDrawn(t *testing.T) {
	v := &Findings{Scene: Scene{Program: "<&>"}}
	if svg := v.Plot(); !bytes.Contains(svg, []byte("&lt;&amp;&gt;")) || !bytes.HasSuffix(svg, []byte("</svg>\n")) {
		t.Errorf("%s", svg)
	}
}

func addr(s string) socket.Address { return must.Be(socket.ParseAddress(s)) }

func TestLoadThatTheMachineCannotBearIsGivenUp(t *testing.T) {
	r := &proof{Plan: Plan{Rate: 500, Timeout: 10 * time.Second}}
	for _, c := range []struct {
		took    time.Duration
		ended   int
		givesUp bool
	}{
		{19 * time.Second, 0, false}, // every request may still be answered in time
		{30 * time.Second, 5000, false},
		{30 * time.Second, 4900, true},
	} {
		r.tally.all = make(load.Attempts, c.ended)
		if why := r.overload(c.took); (why != "") != c.givesUp {
			t.Errorf("%d requests have ended after %s, at 500 a second: %q", c.ended, c.took, why)
		}
	}
}

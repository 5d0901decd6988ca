package program

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/life"
)

// beginning is when every transcript begins.
const beginning = 1_000_000

// TestTranscripts plays the histories in testdata. Each is a list of events, and below each what the core does about
// it; go test
// -run Transcripts -rewrite writes the answers anew. The first command, program, has the configuration as its input.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) < 100 {
		t.Fatalf("%d transcripts, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			transcript := &transcript{now: time.Unix(beginning, 0).UTC()}
			datadriven.RunTest(t, path, transcript.answer)
		})
	}
}

// What docs/how-it-works.md shows of a transcript, which it names before, is in its file.
func TestTranscriptsInTheDocumentationAreThoseOfTheFiles(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/how-it-works.md"))(t)
	shown := regexp.MustCompile("(?s)\\(`([a-z-]+\\.txt)`\\)[^`]*\n\n```\n(.*?)```").FindAllStringSubmatch(string(text),
		-1)
	for _, s := range shown {
		if file, err := os.ReadFile("testdata/" + s[1]); err != nil ||
			!strings.Contains(string(file), "\n\n"+strings.TrimSuffix(s[2], "\n")+"\n") {
			t.Errorf("%s does not have what the documentation shows of it (%v):\n%s", s[1], err, s[2])
		}
	}
	if len(shown) < 4 {
		t.Errorf("the documentation shows %d transcripts", len(shown))
	}
}

// transcript is a program that is driven by the commands of a file.
type transcript struct {
	p       *Program
	now     time.Time
	steered bool // its generations have sockets of their own
	unit    bool // … beside that of a socket unit

	unsendable bool // signals cannot be sent
	did        []Action
	out        strings.Builder
	d          *datadriven.TestData
	t          *testing.T
}

// newTranscript returns the transcript of a program that has not been started.
func newTranscript(t *testing.T, c *config.Program) *transcript {
	return &transcript{t: t, p: New(c), now: time.Unix(beginning, 0)}
}

// plays carries out commands with semicolons between them. What a person asks for is not refused before the core
// answers it.
func (s *transcript) plays(commands string) {
	s.t.Helper()
	for line := range strings.SplitSeq(commands, ";") {
		cmd, args, err := datadriven.ParseLine(strings.TrimSpace(line))
		if err != nil {
			s.t.Fatal(err)
		}
		s.d = &datadriven.TestData{Pos: line, Cmd: cmd, CmdArgs: args}
		if request := requests[cmd]; request != nil {
			s.step(request(s, ""))
		} else if cmd != "" {
			s.carryOut()
		}
	}
}

// answer carries out a command and returns what the program did.
func (s *transcript) answer(t *testing.T, d *datadriven.TestData) string {
	s.t, s.d = t, d
	s.out.Reset()
	if d.Cmd == "report" {
		return s.report()
	}
	if s.p == nil && d.Cmd != "program" {
		d.Fatalf(t, "a transcript begins with the command program")
	}
	before := State("")
	if s.p != nil {
		before = s.p.State()
	}
	s.carryOut()
	if after := s.p.State(); after != before && d.Cmd != "show" {
		fmt.Fprintf(&s.out, "state: %s\n", after)
	}
	return cmp.Or(s.out.String(), "nothing\n")
}

// report is what a person reads of the report in the input.
func (s *transcript) report() string {
	r := Report{Took: s.duration("took"), After: s.duration("after")}
	if err := json.Unmarshal([]byte(s.d.Input), &r); err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return fmt.Sprintf("%s: %s\n", r.Level(), r.Text("web"))
}

func (s *transcript) carryOut() {
	switch s.d.Cmd {
	case "program":
		c := s.config()
		s.steered, s.unit = s.d.HasArg("steered"), s.d.HasArg("socket-unit")
		s.p = New(c)
		s.awaits()
		s.step(Start{Config: c})
	case "tick":
		s.step(Tick{})
	case "wait":
		s.wait(s.duration("for"))
	case "new-master":
		s.restore()
	case "signals-fail", "signals-work":
		s.unsendable = s.d.Cmd == "signals-fail"
	case "show":
		s.show()
		if s.d.HasArg("records") {
			s.records()
		}
	case "orphans": // of a supervisor that died
		s.p.Orphaned = s.d.HasArg("serve")
		s.step(Tick{})
	case "lent": // a generation, or none
		if s.p.Lent = nil; s.d.HasArg("generation") {
			s.p.Lent = map[int]string{s.number("generation"): "127.0.0.1:80 until proxy serves there"}
		}
		s.step(Tick{})
	case "others": // do not serve: those that are named
		s.awaits()
		s.step(Tick{})
	default:
		for _, e := range s.events() {
			s.step(e)
		}
	}
}

// requests are what a person asks for, which may be refused.
var requests = map[string]func(s *transcript, by string) Event{
	"promote": func(s *transcript, by string) Event { return Promote{Share: s.share(), AskedBy: by} },
	"abort": func(s *transcript, by string) Event {
		return Abort{Reason: "requested", AskedBy: by, ThenReload: s.d.HasArg("then-reload")}
	},
	"rollback": func(_ *transcript, by string) Event { return Rollback{AskedBy: by} },
	"pause":    func(s *transcript, by string) Event { return Pause{For: s.duration("for"), AskedBy: by} },
	"unpause":  func(_ *transcript, by string) Event { return Unpause{AskedBy: by} },
	"scale":    func(s *transcript, by string) Event { return Scale{Workers: s.number("workers"), AskedBy: by} },
}

// others are what happens to a program besides.
var others = map[string]func(s *transcript, by string) Event{
	"start":  func(s *transcript, by string) Event { return Start{Config: s.p.Config, AskedBy: by} },
	"reload": (*transcript).reload,
	"changed": func(s *transcript, _ string) Event {
		return Reload{Reason: "watched files have changed", AskedBy: ByWatch(s.text("path")), By: Changed}
	},
	"stop": func(s *transcript, by string) Event {
		return Stop{Reason: "requested", AskedBy: by, Interrupted: s.d.HasArg("interrupted"), Handed: s.d.HasArg("handed")}
	},
	"kill":     func(_ *transcript, by string) Event { return Kill{Reason: "requested", AskedBy: by} },
	"prepared": func(s *transcript, _ string) Event { return s.prepared() },
	"quiet":    func(s *transcript, _ string) Event { return s.looked() },
	"busy":     func(s *transcript, _ string) Event { return s.looked() },
	"refused":  func(s *transcript, _ string) Event { return Refused{s.number("generation"), s.number("connections")} },
}

// ofWorkers are what happens to the workers that the command names.
var ofWorkers = map[string]func(s *transcript, w int) Event{
	"runs":      func(_ *transcript, w int) Event { return Did{w, life.Spawned{PID: 100 + w}} },
	"ready":     func(_ *transcript, w int) Event { return Did{w, life.ReadySaid{}} },
	"extends":   func(s *transcript, w int) Event { return Did{w, life.Extend{Duration: s.duration("by")}} },
	"exits":     func(s *transcript, w int) Event { return Did{w, s.exited()} },
	"unhealthy": func(_ *transcript, w int) Event { return Replace{Worker: w, Reason: "unhealthy"} },
	"too-big": func(_ *transcript, w int) Event {
		return Replace{Worker: w, Reason: "uses more than its memory limit", OverLimit: true}
	},
	"drains-itself": func(_ *transcript, w int) Event { return Did{w, life.DrainsItself{}} },
	"signalled": func(_ *transcript, w int) Event {
		return Signalled{SendSignal{Worker: w, Signal: syscall.SIGTERM}}
	},
	"leaves":      func(_ *transcript, w int) Event { return Did{w, life.Leaving{}} },
	"never-ready": func(_ *transcript, w int) Event { return Did{w, life.NeverReady{Err: errors.New("cannot know")}} },
}

// events returns the events that a command stands for: none, with the reason, if what a person asks for is refused.
func (s *transcript) events() (events []Event) {
	if request := requests[s.d.Cmd]; request != nil {
		e := request(s, s.text("by"))
		if why := s.p.Refuses(e); why != "" {
			fmt.Fprintf(&s.out, "refused: %s\n", why)
			return nil
		}
		return []Event{e}
	}
	if event := others[s.d.Cmd]; event != nil {
		return []Event{event(s, s.text("by"))}
	}
	event := ofWorkers[s.d.Cmd]
	if event == nil {
		s.d.Fatalf(s.t, "unknown command %s", s.d.Cmd)
	}
	for _, w := range s.workers() {
		events = append(events, event(s, w))
	}
	return events
}

func (s *transcript) exited() life.Exited {
	switch {
	case s.d.HasArg("unadopted"):
		return life.Exited{Step: "adopt", Err: errors.New("process 4711: its pidfd is that of another process"),
			Unadopted: true}
	case s.d.HasArg("step"):
		return life.Exited{Step: s.text("step"), Err: errors.New("/bin/web: no such file or directory")}
	case s.d.HasArg("clean"):
		return life.Exited{Known: true}
	case s.d.HasArg("unknown"):
		return life.Exited{}
	case s.d.HasArg("oom"):
		return life.Exited{Known: true, Status: syscall.WaitStatus(unix.SIGKILL), OOM: true}
	case s.d.HasArg("status"):
		return life.Exited{Known: true, Status: syscall.WaitStatus(s.number("status") << 8), Tail: s.tail()}
	case s.d.HasArg("signal"):
		return life.Exited{Known: true, Status: syscall.WaitStatus(unix.SignalNum("SIG" + s.text("signal"))),
			Tail: s.tail()}
	}
	return life.Exited{Known: true, Status: 1 << 8, Tail: s.tail(), Unaccepted: s.number("unaccepted")}
}

// tail is the last output of a worker: the input of the command.
func (s *transcript) tail() []string {
	if s.d.Input == "" {
		return nil
	}
	return strings.Split(s.d.Input, "\n")
}

// config returns the program in the input, as the configuration is read anywhere else.
func (s *transcript) config() *config.Program {
	c, err := config.Parse("/", s.d.Pos, []byte(s.d.Input))
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return &c.Programs[0]
}

func (s *transcript) reload(by string) Event {
	r := Reload{Reason: "requested", AskedBy: by, Canary: s.number("canary"), Share: s.share(), For: s.duration("for")}
	if s.d.Input != "" {
		r.Config = s.config()
	}
	if r.Share > 0 && !s.steered {
		r.Unsteered = "the listener is shared by the generations"
	}
	return r
}

// prepared says that the trial is prepared, or at which step that failed.
func (s *transcript) prepared() Event {
	t := s.p.Trial
	if s.d.HasArg("generation") { // late
		return Prepared{Generation: s.number("generation")}
	}
	if t == nil {
		s.d.Fatalf(s.t, "nothing is on trial")
	}
	if s.d.HasArg("step") {
		return Prepared{Generation: t.Number, Failure: &Failure{Step: s.text("step"), Reason: "exited with status 1"}}
	}
	steered := s.steered && !s.d.HasArg("unsteered")
	e := Prepared{Generation: t.Number, Steered: steered, Sockets: s.number("sockets"),
		BesideUnit: s.unit && t.Number%2 == 0}
	if steered && e.Sockets == 0 {
		e.Sockets = 1
		if c := t.Config; len(c.Listen) > 0 && c.Listen[0].EachOwn(c.Workers) {
			e.Sockets = c.Workers
		}
	}
	return e
}

// looked is what the kernel says of the connections of a generation that goes.
func (s *transcript) looked() Event {
	slot, look := -1, Look{Queued: s.number("queued"), Unread: s.number("unread"), Answering: s.number("answering"),
		Active: s.number("active"), Idle: s.number("idle")}
	if s.d.HasArg("slot") {
		slot = s.number("slot")
	}
	return Looked{s.number("generation"), slot, s.d.Cmd == "quiet", s.d.HasArg("unseen"), look}
}

// wait lets time pass, deadline by deadline, as the loop does.
func (s *transcript) wait(d time.Duration) {
	began, end := s.now, s.now.Add(d)
	for next := s.p.Next(s.now); !next.IsZero() && !next.After(end); next = s.p.Next(s.now) {
		s.now = next
		before := s.out.Len()
		s.step(Tick{})
		if text := s.out.String(); len(text) > before {
			s.out.Reset()
			fmt.Fprintf(&s.out, "%safter %s:\n%s", text[:before], next.Sub(began).Round(time.Millisecond), text[before:])
		}
	}
	s.now = end
}

// restore continues as the next supervisord does, from the record alone.
func (s *transcript) restore() {
	s.p = recorded(s.t, s.p)
	s.now = s.now.Add(s.duration("for"))
	s.p.Inherit(s.now)
	s.step(Tick{})
}

// step gives the program an event; with "waits", connections wait at sockets that no worker is at.
func (s *transcript) step(e Event) {
	if s.p.Unaccepted = nil; s.d.HasArg("waits") {
		s.p.Unaccepted = s.p.Deserted()
	}
	actions := s.p.Step(s.now, e)
	s.did = append(s.did, actions...)
	for _, a := range actions {
		fmt.Fprintln(&s.out, sentence(a))
	}
	if !s.unsendable {
		sent(s.p, s.now, actions)
	}
}

// records lists all that is said of the program elsewhere: in status, in the status file, in what it remembers.
func (s *transcript) records() {
	say := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&s.out, "%s: %s\n", what, text)
		}
	}
	say("summary", s.p.Summary())
	say("status file", strings.Join(strings.Fields(s.p.Lines()), " "))
	say("a reload waits", s.p.Waits(s.now))
	if n := s.p.Awaited(); n != s.p.LastGeneration {
		say("awaited", fmt.Sprintf("generation %d", n))
	}
	say("next", s.when(s.p.Next(s.now)))
	say("retried", s.when(s.p.RetryTime(s.now)))
	say("over", s.when(s.p.Horizon()))
	if s.p.Serving != nil {
		say("a rollback is refused", s.p.Refuses(Rollback{}))
	}
	if s.p.Restarts > 0 {
		say("restarts", strconv.Itoa(s.p.Restarts))
	}
	say("crash budget whole", s.when(s.p.WholeAt))
	if s.p.LastCrash != nil {
		say("last crash", s.fields(s.p.LastCrash))
	}
	if s.p.LastStop != nil {
		say("last stop", s.fields(s.p.LastStop))
	}
	for _, r := range s.p.Reloads {
		say(fmt.Sprintf("reload to generation %d", r.Generation), s.fields(r))
	}
}

// when is a time since the beginning of the transcript.
func (s *transcript) when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "at " + t.Sub(time.Unix(beginning, 0)).Round(time.Millisecond).String()
}

// fields are the fields of a record, as others see them, but for the names of configurations.
func (s *transcript) fields(record any) string {
	text, err := json.Marshal(record)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	var words []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		value := all[key]
		text, _ := value.(string)
		at, notTime := time.Parse(time.RFC3339Nano, text)
		switch {
		case key == "config" || value == 0.0 || value == "":
			continue
		case notTime == nil:
			value = strings.TrimPrefix(s.when(at), "at ")
		case strings.HasSuffix(key, "_ns"):
			key, value = strings.TrimSuffix(key, "_ns"), time.Duration(value.(float64)).Round(time.Millisecond)
		}
		words = append(words, fmt.Sprintf("%s=%v", strings.ToLower(key), value))
	}
	return strings.Join(words, ", ")
}

// show lists the generations and their workers.
func (s *transcript) show() {
	fmt.Fprintf(&s.out, "state: %s\n", s.p.State())
	for _, g := range s.p.Generations() {
		fmt.Fprintf(&s.out, "generation %d: %s\n", g.Number, s.p.Role(g))
		for _, w := range g.Workers {
			fmt.Fprintf(&s.out, "  worker %d in slot %d: %s\n", w.Number, w.Slot, w.State)
		}
	}
	for _, r := range s.p.Reloads {
		fmt.Fprintf(&s.out, "reload to generation %d: %s", r.Generation, r.Outcome)
		if r.Failure != nil {
			fmt.Fprintf(&s.out, " (%s: %s)", r.Failure.Step, r.Failure.Reason)
		}
		if r.Killed > 0 {
			fmt.Fprintf(&s.out, ", %s killed", count(r.Killed, "old worker"))
		}
		if !r.RolledBack.IsZero() {
			fmt.Fprint(&s.out, ", rolled back")
		}
		if r.Reset > 0 {
			fmt.Fprintf(&s.out, ", %s reset", count(r.Reset, "connection"))
		}
		fmt.Fprintln(&s.out)
	}
}

// sentence says in a line what an action does: what happens in the imperative, what is told after "log: ".
func sentence(a Action) string {
	switch a := a.(type) {
	case Prepare:
		return fmt.Sprintf("prepare generation %d", a.Generation.Number)
	case Abandon:
		return fmt.Sprintf("stop preparing generation %d", a.Generation)
	case Spawn:
		return fmt.Sprintf("start worker %d of generation %d in slot %d", a.Worker.Number, a.Generation.Number, a.Worker.Slot)
	case SendSignal:
		return fmt.Sprintf("send %s to worker %d%s", config.SignalName(a.Signal), a.Worker,
			map[bool]string{true: " and its process group"}[a.Group])
	case Steer:
		return "new connections go to " + destinations(a.Shares)
	case SetPaused:
		return map[bool]string{true: "hold new connections in the kernel", false: "let new connections in"}[a.Paused]
	case Forget:
		return fmt.Sprintf("forget generation %d", a.Generation)
	}
	return "log: " + told(a.(Report))
}

// destinations says which generations get the new connections.
func destinations(shares []Share) string {
	total, words := 0, []string(nil)
	for _, s := range shares {
		total += s.Weight
	}
	for _, s := range shares {
		word := fmt.Sprintf("generation %d", s.Generation)
		if s.Unit {
			word = "the socket of systemd"
		}
		if s.Slots != nil {
			word += " slots " + strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Slots), " ", "+"), "[]")
		}
		if len(shares) > 1 {
			word += fmt.Sprintf(" (%.4g%%)", 100*float64(s.Weight)/float64(total))
		}
		words = append(words, word)
	}
	return cmp.Or(strings.Join(words, " and "), "nobody")
}

// told is a report in a line.
func told(r Report) string {
	about := ""
	switch {
	case r.Worker > 0:
		about = fmt.Sprintf(" [worker %d of generation %d]", r.Worker, r.Generation)
	case r.Generation > 0:
		about = fmt.Sprintf(" [generation %d]", r.Generation)
	}
	more := map[string]string{
		"1 at ": r.Step, "2 because: ": r.Reason, "3 asked by ": r.AskedBy, "4 output: ": strings.Join(r.Tail, " / "),
	}
	if len(r.Awaits) > 0 {
		more["0 for "] = list(r.Awaits)
	}
	if r.After > 0 {
		more["5 next after "] = r.After.Round(time.Millisecond).String()
	}
	if r.Took > 0 {
		more["6 took "] = r.Took.Round(time.Millisecond).String()
	}
	if r.Killed+r.Reset > 0 {
		more["7 killed or reset: "] = strconv.Itoa(r.Killed + r.Reset)
	}
	if r.Kind == WorkerDied && (r.Expected || r.Clean) {
		more["8 "] = map[bool]string{true: "expected", false: "clean"}[r.Expected]
	}
	if r.Repeats {
		more["91 "] = "repeats"
	}
	if r.Serving != 0 && r.Serving != r.Generation {
		more["9 serving: "] = strconv.Itoa(r.Serving)
	}
	text := r.Kind.Sentence() + about
	for _, key := range slices.Sorted(maps.Keys(more)) {
		if more[key] != "" {
			text += "; " + strings.TrimLeft(key, "0123456789 ") + more[key]
		}
	}
	return text
}

// awaits says which other programs do not serve.
func (s *transcript) awaits() {
	s.p.Awaits = nil
	for _, a := range s.d.CmdArgs {
		if a.Key == "awaits" {
			s.p.Awaits = a.Vals
		}
	}
}

func (s *transcript) text(key string) (value string) {
	s.d.MaybeScanArgs(s.t, key, &value)
	return value
}

func (s *transcript) number(key string) (value int) {
	s.d.MaybeScanArgs(s.t, key, &value)
	return value
}

func (s *transcript) duration(key string) time.Duration {
	text := s.text(key)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return d
}

// share is the argument share=5% in parts of Whole.
func (s *transcript) share() int {
	percent, err := strconv.ParseFloat(cmp.Or(strings.TrimSuffix(s.text("share"), "%"), "0"), 64)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return int(percent * Whole / 100)
}

// workers are the arguments without a key: numbers, or all, of the generation on trial.
func (s *transcript) workers() (numbers []int) {
	if s.d.HasArg("all") && s.p.Trial != nil {
		for _, w := range s.p.Trial.Workers {
			numbers = append(numbers, w.Number)
		}
	}
	for _, a := range s.d.CmdArgs {
		if n, err := strconv.Atoi(a.Key); err == nil && len(a.Vals) == 0 {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		s.d.Fatalf(s.t, "which worker?")
	}
	return numbers
}

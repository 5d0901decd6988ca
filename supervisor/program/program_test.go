package program

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
)

// testConfig returns a program with the defaults of the configuration, but without a crash budget.
func testConfig(workers int, strategy config.Strategy) *config.Program {
	c := &config.Program{Name: "web", Workers: workers}
	c.Ready.Timeout = time.Minute
	c.Reload = config.ReloadPolicy{Strategy: strategy, MaxSurge: 1, MaxDraining: 4}
	c.Stop = config.StopPolicy{Steps: []config.StopStep{{Signal: syscall.SIGTERM, Wait: 30 * time.Second}}}
	c.Restart = config.Restart{When: config.Always, BackoffMin: 200 * time.Millisecond, BackoffMax: 30 * time.Second,
		StableAfter: 10 * time.Second}
	return c
}

// recorded returns what the next supervisord knows of a program: the core's text, and what the record has in parts of
// its own, of which generations share their configurations.
func recorded(t rapid.TB, p *Program) *Program {
	q, configs := copied(t, p), map[*config.Program]*config.Program{nil: nil}
	again := func(c *config.Program) *config.Program {
		if _, has := configs[c]; !has {
			configs[c] = copied(t, c)
		}
		return configs[c]
	}
	q.Config, q.Candidate, q.Awaits = again(p.Config), again(p.Candidate), p.Awaits
	q.Lent = p.Lent
	for _, r := range p.Reloads {
		q.Reloads = append(q.Reloads, copied(t, r))
	}
	for i, g := range q.Generations() {
		was := p.Generations()[i]
		g.Config, g.Slots = again(was.Config), *copied(t, &was.Slots)
		for _, w := range was.Workers {
			g.Workers = append(g.Workers, copied(t, w))
		}
	}
	return q
}

// copied returns a copy by way of the text.
func copied[T any](t rapid.TB, v *T) *T {
	text, err := json.Marshal(v)
	c := new(T)
	if err == nil {
		err = json.Unmarshal(text, c)
	}
	must.Do(t, err)
	return c
}

// sent tells a program that its signals were sent.
func sent(p *Program, now time.Time, actions []Action) {
	for _, s := range of[SendSignal](actions) {
		p.Step(now, Signalled{s})
	}
}

// of returns the actions of one kind.
func of[A Action](actions []Action) (those []A) {
	for _, a := range actions {
		if a, is := a.(A); is {
			those = append(those, a)
		}
	}
	return those
}

// shorten writes actions as "prepare 2, spawn 2/0, TERM 1, forget 1".
func shorten(actions []Action) string {
	var words []string
	for _, a := range actions {
		switch a := a.(type) {
		case Prepare:
			words = append(words, fmt.Sprintf("prepare %d", a.Generation.Number))
		case Abandon:
			words = append(words, fmt.Sprintf("abandon %d", a.Generation))
		case Spawn:
			words = append(words, fmt.Sprintf("spawn %d/%d", a.Generation.Number, a.Worker.Slot))
		case SendSignal:
			name := map[syscall.Signal]string{syscall.SIGTERM: "TERM", syscall.SIGKILL: "KILL",
				syscall.SIGQUIT: "QUIT"}[a.Signal]
			words = append(words, fmt.Sprintf("%s %d", name, a.Worker))
		case Steer:
			words = append(words, steerWords(a.Shares))
		case SetPaused:
			words = append(words, map[bool]string{true: "pause", false: "resume"}[a.Paused])
		case Forget:
			words = append(words, fmt.Sprintf("forget %d", a.Generation))
		}
	}
	return strings.Join(words, ", ")
}

func TestEndsThatCountAsASuccessAreNoCrash(t *testing.T) {
	server := []socket.Spec{{Name: "http"}}
	codes := []int{3, 137, 143}
	for _, c := range []struct {
		end     string
		success bool
		when    config.When
		listen  []socket.Spec
		codes   []int
	}{
		{"status=3", true, config.OnFailure, nil, codes},
		{"status=4", false, config.OnFailure, nil, codes},
		{"status=143", true, config.OnFailure, nil, codes},
		{"signal=TERM", true, config.OnFailure, nil, codes}, // 128+15
		{"signal=INT", false, config.OnFailure, nil, codes},
		{"oom", false, config.OnFailure, nil, codes}, // KILL, of the kernel's
		{"unknown", false, config.OnFailure, nil, []int{0}},
		{"clean", false, config.Always, server, []int{143}},
		{"clean", true, config.Always, server, []int{0}},
		{"clean", true, config.OnFailure, server, nil}, // it need not run on
		{"clean", true, config.Always, nil, nil},       // no client is served
	} {
		conf := testConfig(1, config.All)
		conf.Restart.When, conf.Listen, conf.SuccessCodes = c.when, c.listen, c.codes
		s := newTranscript(t, conf)
		s.plays("start; prepared; ready all; exits 1 " + c.end)
		if crashed := s.p.LastCrash != nil; crashed == c.success {
			t.Errorf("%+v: counted as a crash: %v", c, crashed)
		}
		if got := s.p.State(); c.when == config.OnFailure && (got == Down) != c.success {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// steerWords writes shares as "steer 2", or "steer 1:9500 2:500", or "steer 1[0 1]:2 2[2]:1".
func steerWords(shares []Share) string {
	words := "steer"
	for _, s := range shares {
		words += fmt.Sprintf(" %d", s.Generation)
		if s.Slots != nil {
			words += fmt.Sprint(s.Slots)
		}
		if len(shares) > 1 || s.Weight != Whole {
			words += fmt.Sprintf(":%d", s.Weight)
		}
	}
	return words
}

// allTimes finds every time that v may have, however deep, but not in configurations: it gives v what its pointers may
// point to, and an element of each slice.
func allTimes(v reflect.Value, found func(*time.Time)) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		found(v.Addr().Interface().(*time.Time))
	case v.Type() == reflect.TypeFor[*config.Program]():
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		allTimes(v.Elem(), found)
	case v.Kind() == reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		allTimes(v.Index(0), found)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous {
				allTimes(v.Field(i), found)
			}
		}
	}
}

func TestRebaseMovesEveryTimeOfProgram(t *testing.T) {
	p := new(Program)
	then := time.Now().Add(-time.Hour).Round(0)
	n := 0
	allTimes(reflect.ValueOf(p), func(t *time.Time) { n++; *t = then.Add(time.Duration(n) * time.Second) })
	now := time.Now()
	p.Rebase(then, now)
	n = 0
	allTimes(reflect.ValueOf(p), func(got *time.Time) {
		n++
		if want := now.Add(time.Duration(n) * time.Second); *got != want {
			t.Errorf("time %d is %s, want %s", n, got, want)
		}
	})
	if n < 50 {
		t.Errorf("there are only %d times", n)
	}
}

// lanes is a model of what package socket does about the decisions of a program: which lane each generation has, where
// the kernel sends new connections, and which clients wait where.
type lanes struct {
	of      map[int]int // the lane of each generation
	serving []int       // the lanes that get new connections
	waiting map[int]int // clients, by lane
}

// follow carries out the actions of a step.
func (l *lanes) follow(actions []Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case Prepare:
			l.of[a.Generation.Number] = l.lease()
		case Forget:
			delete(l.of, a.Generation)
		case Steer:
			l.steer(a.Shares)
		}
	}
	for lane := range l.waiting {
		if !l.held(lane) && !slices.Contains(l.serving, lane) {
			delete(l.waiting, lane) // these are reset
		}
	}
}

// lease returns the lane of the next generation: one that nobody has, first those that get new connections.
func (l *lanes) lease() int {
	for _, lane := range l.serving {
		if !l.held(lane) {
			return lane
		}
	}
	lane := 0
	for l.held(lane) {
		lane++
	}
	return lane
}

func (l *lanes) held(lane int) bool { return slices.Contains(slices.Collect(maps.Values(l.of)), lane) }

// steer sends new connections where the program wants them. A generation that is gone has no lane: they go where they
// went. Without a share another program gets them.
func (l *lanes) steer(shares []Share) {
	var serving []int
	for _, s := range shares {
		if lane, has := l.of[s.Generation]; has {
			serving = append(serving, lane)
		}
	}
	if len(serving) > 0 || len(shares) == 0 {
		l.serving = serving
	}
}

// accept lets every worker accept that can.
func (l *lanes) accept(p *Program) {
	for w, g := range p.Workers() {
		if w.State != Starting && w.State != Stopping {
			delete(l.waiting, l.of[g.Number])
		}
	}
}

// drawLanes draws a configuration whose generations have lanes.
func drawLanes(t *rapid.T) *config.Program {
	c := drawSteered(t)
	c.Workers = max(2, c.Workers)
	return c
}

// drawLasting is drawLanes for the end of a history: nothing begins by itself.
func drawLasting(t *rapid.T) *config.Program {
	c := drawLanes(t)
	c.MaxAge, c.Reload.Every = 0, 0
	return c
}

// withClients plays a history in which clients connect and workers accept at any time.
func withClients(t *rapid.T) (*history, *lanes) {
	l := &lanes{of: map[int]int{}, waiting: map[int]int{}}
	h := historyOf(t, drawLanes, true)
	h.follow = l.follow
	h.follow(h.actions)
	for range rapid.IntRange(0, 80).Draw(t, "length") {
		h.step(h.event())
		if rapid.Bool().Draw(t, "goes well") {
			h.goesWell()
		}
		if len(l.serving) > 0 && rapid.Bool().Draw(t, "connects") {
			l.waiting[rapid.SampledFrom(l.serving).Draw(t, "lane")]++
		}
		if rapid.Bool().Draw(t, "accept") {
			l.accept(h.p)
		}
	}
	return h, l
}

func TestAnyHistoryEndsWithNobodyWaitingWhereNobodyAccepts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, l := withClients(t)
		newest := drawLasting(t)
		h.step(Start{Config: newest})
		h.step(Reload{Config: newest, Reason: "HUP"})
		h.settleDown()
		if l.accept(h.p); len(l.waiting) > 0 {
			t.Fatalf("clients wait by lane: %v, generations have %v", l.waiting, l.of)
		}
	})
}

func TestClientsOfAStoppedProgramWaitInTheLaneOfTheNextGeneration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, l := withClients(t)
		h.step(Stop{})
		h.settleDown()
		waiting := slices.Clone(l.serving)
		if len(waiting) > 1 {
			t.Fatalf("while nothing serves, new connections go to the lanes %v", waiting)
		}
		h.step(Start{Config: drawLasting(t)})
		h.settleDown()
		if lane := l.of[h.p.Serving.Number]; len(waiting) == 1 && lane != waiting[0] {
			t.Fatalf("clients waited in lane %d, and the next generation has lane %d", waiting[0], lane)
		}
	})
}

// allowedImports lists the packages that a pure core needs. None of them can wait, or read or change the machine.
var allowedImports = []string{
	"cmp", "fmt", "iter", "math/bits", "slices", "strings", "time", "example.org/supervisord/internal/config",
	"example.org/supervisord/worker/life",
}

// impureTime lists the functions of package time that read a clock or wait.
var impureTime = []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}

// impure returns what makes a node impure, or "".
func impure(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
		return "uses a channel"
	case *ast.ImportSpec:
		if path, _ := strconv.Unquote(n.Path.Value); !slices.Contains(allowedImports, path) {
			return "imports " + path
		}
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(impureTime, n.Sel.Name) {
			return "calls time." + n.Sel.Name
		}
	}
	return ""
}

func TestCoreIsPure(t *testing.T) {
	files := must.Get(filepath.Glob("*.go"))(t)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file := must.Get(parser.ParseFile(fset, name, nil, 0))(t)
		ast.Inspect(file, func(n ast.Node) bool {
			if what := impure(n); what != "" {
				t.Errorf("%s: the core %s", fset.Position(n.Pos()), what)
			}
			return true
		})
	}
}

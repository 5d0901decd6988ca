package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
)

// TestStories plays testdata/stories: a section is a story on a stage. A line is a step, or a few that
// do something, with semicolons between them; # begins a comment.
//
//	program NAME OPTION…   configures a program, or changes it; see options
//	without NAME…          takes programs out of the configuration
//	DOES ARGUMENT…         see does; the first of these lines starts the supervisor
//	SHOWS ARGUMENT… = …    compares; see shows. "…text" is contained in what is shown, "3..5" are numbers
//	refused DOES … = …     the request is refused with this error
//	asks NAME DOES …       the request is made, and its answer not waited for; see answer
//
// A worker is the number of its start, or its program: then the newest becomes ready, and the oldest ends. A step that
// begins with + is taken before anything happens because of the one before it.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		for _, f := range must.Get(txtar.ParseFile(path))(t).Files {
			t.Run(f.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { tell(t, string(f.Data)) })
			})
		}
	})
}

// story is a stage that a text plays on.
type story struct {
	*stage
	programs []*config.Program
	begun    bool
	clients  map[string]*client
	asked    map[string]chan error // requests that are not answered yet
	ticket   Ticket
	due      *alarm // that was stopped
	sighted  func()
	wrong    error // why the last step could not be taken
	probes   atomic.Int32
	probed   atomic.Value // the URL
}

func tell(t *testing.T, text string) {
	s := &story{stage: newStage(t), clients: map[string]*client{}, asked: map[string]chan error{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if err := s.plays(line); err != nil {
			t.Errorf("line %d, %s\n%v", number, strings.TrimSpace(line), err)
			break
		}
	}
	s.end()
}

// next is the next supervisord, which gets what there is of this one when the wall clock has been set to so much later.
func (s *story) next(later time.Duration) {
	h, kept := s.handover()
	clockSet(h.Record, later)
	s.end()
	before := s.stage
	s.stage = newStage(s.T)
	s.conf = before.conf
	maps.Copy(s.launcher.systemd.fakeStore, kept)
	s.launcher.systemd.unchecked = true // the end of the one before has emptied the record that is kept
	s.super.Restore(h)
	s.launcher.systemd.unchecked = false
	s.run()
}

// plays a line: a step that compares, or steps that do something.
func (s *story) plays(line string) error {
	step, want, compares := strings.Cut(line, " =")
	if compares {
		words := strings.Fields(step)
		return s.takes(words[0], words[1:], strings.TrimSpace(want), true)
	}
	for step := range strings.SplitSeq(line, ";") {
		if words := strings.Fields(step); len(words) > 0 {
			if err := s.takes(words[0], words[1:], "", false); err != nil {
				return err
			}
		}
	}
	return nil
}

// takes a step.
func (s *story) takes(verb string, args []string, want string, compares bool) error {
	if change, is := setup[verb]; is {
		change(s, args)
		return nil
	}
	if !s.begun {
		s.begun = true
		must.Do(s, s.super.Start(s.conf, nil))
		s.run()
	}
	verb, atOnce := strings.CutPrefix(verb, "+")
	if !atOnce {
		synctest.Wait()
	}
	if show, is := shows[verb]; is && compares {
		got := ""
		if shown := show(s, args); shown != nil {
			got = fmt.Sprint(shown)
		}
		if !fits(got, want) {
			return fmt.Errorf("got %q", got)
		}
		return nil
	}
	way, name := verb, ""
	switch way {
	case "refused":
		verb, args = args[0], args[1:]
	case "asks":
		name, verb, args = args[0], args[1], args[2:]
	}
	do, is := does[verb]
	request, asks := requests[verb]
	switch {
	case is && way == verb && !compares:
		do(s, args)
		return s.wrong
	case !asks || compares != (way == "refused"):
		return errors.New("there is no such step")
	case way == "asks":
		answer := make(chan error, 1)
		s.asked[name] = answer
		go func() { answer <- request(s, args) }()
		return nil
	case way == "refused":
		return refuses(verb, request(s, args), want)
	}
	return request(s, args)
}

// refuses returns an error unless a request was refused with an error of its kind that fits.
func refuses(verb string, err error, want string) error {
	kind := map[string]error{"canary": ErrCanary, "share": ErrCanary, "reload": err}[verb] // "reload": its text tells
	if err == nil || !errors.Is(err, cmp.Or(kind, ErrState)) || !fits(err.Error(), want) {
		return fmt.Errorf("got %v", err)
	}
	return nil
}

func fits(got, want string) bool {
	if part, is := strings.CutPrefix(want, "…"); is {
		return strings.Contains(got, part)
	}
	if from, to, is := strings.Cut(want, ".."); is {
		return number(from) <= number(got) && number(got) <= number(to)
	}
	return got == want
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// duration parses a duration, such as "10s-1ms"; "look" is the time until the first look at an old worker, "sample" the
// one between two looks at the memory.
func duration(s string) time.Duration {
	s = strings.NewReplacer("look", diag.First.String(), "sample", sampleInterval.String()).Replace(s)
	first, less, _ := strings.Cut(s, "-")
	d, err := time.ParseDuration(first)
	minus, err2 := time.ParseDuration(cmp.Or(less, "0"))
	if err := errors.Join(err, err2); err != nil {
		panic(err)
	}
	return d - minus
}

// setup changes the configuration, which a HUP brings into effect.
var setup = map[string]func(s *story, args []string){
	"program": func(s *story, args []string) {
		i := slices.IndexFunc(s.programs, func(p *config.Program) bool { return p.Name == args[0] })
		if i < 0 {
			p := testProgram(s.T, args[0])
			p.Listen, p.Command = nil, []string{args[0]}
			i, s.programs = len(s.programs), append(s.programs, p)
		}
		p := *s.programs[i]
		for _, arg := range args[1:] {
			name, value, _ := strings.Cut(arg, "=")
			options[name](&p, value)
		}
		s.programs[i] = &p
		s.configure()
	},
	"without": func(s *story, args []string) {
		s.programs = slices.DeleteFunc(s.programs, func(p *config.Program) bool { return slices.Contains(args, p.Name) })
		s.configure()
	},
	"many": func(s *story, args []string) { // programs
		for i := range number(args[0]) {
			p := testConfig(1, config.All)
			p.Name, p.Directory = fmt.Sprintf("p%d", i), "/"
			s.programs = append(s.programs, p)
		}
		s.configure()
	},
	"unit": func(s *story, _ []string) { s.programs[0].Listen[0].Address = s.unit(); s.configure() },
	"link": func(s *story, args []string) { // the directory of the program is a link to one with this name now
		at := s.programs[0].Directory
		to := filepath.Join(filepath.Dir(at), args[0])
		must.Do(s, errors.Join(os.Mkdir(to, 0o755), os.Remove(at), os.Symlink(to, at)))
	},
	"stop_delay": func(s *story, args []string) { s.conf.Supervisor.StopDelay = duration(args[0]) },
}

func (s *story) configure() {
	delay := s.conf.Supervisor.StopDelay
	s.conf = configOf(s.programs...)
	s.conf.Supervisor.StopDelay = delay
}

// options change a program.
var options = map[string]func(p *config.Program, value string){
	"after": func(p *config.Program, value string) {
		p.After = strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
	},
	"listens": func(p *config.Program, _ string) {
		p.Listen = append(slices.Clone(p.Listen), socket.Spec{Name: "http", Address: addr("127.0.0.1:0")})
	},
	"steers": func(p *config.Program, _ string) {
		p.Listen = append(slices.Clone(p.Listen),
			socket.Spec{Name: fmt.Sprintf("l%d", len(p.Listen)), Address: addr("127.0.0.1:0"), Handover: socket.Steer})
		p.Drain.Timeout, p.Drain.Silence = 10*time.Second, 100*time.Millisecond
	},
	"at":    func(p *config.Program, value string) { p.Listen[0].Address = addr(value) },
	"share": func(p *config.Program, _ string) { p.Listen[0].ReusePort, p.Listen[0].Handover = true, socket.Share },
	"refuse": func(p *config.Program, value string) {
		p.Listen[0].WhenDown = socket.WhenDown{Refuse: true, After: duration(value)}
	},
	"per_slot": func(p *config.Program, _ string) { p.Listen[0].PerSlot = true },
	"rolling":  func(p *config.Program, _ string) { p.Reload.Strategy = config.Rolling },
	"workers":  func(p *config.Program, value string) { p.Workers = number(value) },
	"soak":     func(p *config.Program, value string) { p.Reload.Soak = duration(value) },
	"keep":     func(p *config.Program, value string) { p.Reload.Keep = duration(value) },
	"silence":  func(p *config.Program, value string) { p.Drain.Silence = duration(value) },
	"spread":   func(p *config.Program, value string) { p.Drain.Spread = duration(value) },
	"once":     func(p *config.Program, _ string) { p.Restart.When = config.Never },
	"watchdog": func(p *config.Program, value string) { p.Health.Watchdog = duration(value) },
	"preflight": func(p *config.Program, value string) {
		p.Reload.Preflight = []string{value}
	},
	"command": func(p *config.Program, value string) { p.Command = strings.Split(value, ",") },
	"budget":  func(p *config.Program, value string) { p.Restart.Budget = number(value) },
	"log": func(p *config.Program, value string) {
		p.Stdout.Kind, p.Log = output.Capture, config.LogPolicy{File: value, MaxSize: 1 << 20}
	},
	"listener": func(p *config.Program, value string) { // another name for it
		p.Listen = slices.Clone(p.Listen)
		p.Listen[0].Name = value
	},
	"check": func(p *config.Program, _ string) {
		p.Health = config.Health{Check: ready.Check{Method: ready.HTTP, Interval: 10 * time.Second,
			URL: "http://127.0.0.1:900{slot}/{generation}"}, Timeout: 5 * time.Second, Failures: 3}
	},
	"max_memory":   func(p *config.Program, value string) { p.MaxMemory = uint64(number(value)) << 20 },
	"max_draining": func(p *config.Program, value string) { p.Reload.MaxDraining = number(value) },
}

// each calls f with the workers that the words name.
func (s *story) each(words []string, newest bool, f func(*fakeWorker)) {
	for _, word := range words {
		if n, err := strconv.Atoi(word); err == nil {
			if n > len(s.workers()) {
				s.wrong = fmt.Errorf("%d workers were started", len(s.started))
				return
			}
			f(s.started[n-1])
			continue
		}
		of := s.of(word)
		if len(of) == 0 {
			s.wrong = fmt.Errorf("no worker of %s lives", word)
			return
		}
		if newest {
			of = of[len(of)-1:]
		}
		f(of[0])
	}
}

// does are the steps. One that cannot be taken sets wrong.
var does = map[string]func(s *story, args []string){
	"ready": func(s *story, args []string) { s.each(args, true, (*fakeWorker).ready) },
	"exit":  func(s *story, args []string) { s.each(args, false, (*fakeWorker).exit) },
	"astray": func(s *story, args []string) { // it could not be adopted
		lost := life.Exited{Step: "adopt", Err: errors.New("there is no pidfd"), Unadopted: true}
		s.each(args, false, func(w *fakeWorker) { w.end(lost) })
	},
	"crash":   func(s *story, args []string) { s.each(args, false, (*fakeWorker).crash) },
	"drains":  says(life.DrainsItself{}), // by itself
	"beats":   says(life.Watchdog{}),
	"trigger": says(life.Watchdog{Trigger: true}),
	"runs":    says(life.Spawned{PID: noProcess + 1}),
	// signals
	"refuses": func(s *story, args []string) { s.each(args, false, func(w *fakeWorker) { w.refuses.Store(true) }) },
	"obeys":   func(s *story, args []string) { s.each(args, false, func(w *fakeWorker) { w.refuses.Store(false) }) },
	"memory": func(s *story, args []string) { // in MiB
		s.each(args[:1], false, func(w *fakeWorker) { w.memory.Store(uint64(number(args[1])) << 20) })
	},
	"preflight": func(s *story, args []string) {
		s.launcher.preflight = func(ctx context.Context) error {
			if args[0] == "hangs" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return errors.New("exited with status 1")
		}
	},
	"probe": func(s *story, args []string) {
		well := func(ctx context.Context, c ready.Check) error {
			n := s.probes.Add(1)
			s.probed.Store(c.URL)
			switch {
			case args[1] == "hangs":
				<-ctx.Done()
				return context.Cause(ctx)
			case args[1] == "works", args[1] == "recovers" && n%3 == 0:
				return nil
			}
			return errors.New("500")
		}
		s.each(args[:1], false, func(w *fakeWorker) { w.probe.Store(&well) })
	},

	"hup": func(s *story, args []string) {
		for range number(cmp.Or(strings.Join(args, ""), "1")) {
			s.hup()
		}
	},
	"signal": func(s *story, args []string) {
		for _, name := range args {
			s.stop <- siginfo.Caught{Number: unix.SignalNum("SIG" + name)}
		}
	},
	"changed": func(s *story, args []string) { s.watcher.changes <- map[string]string{args[0]: args[1]} },
	"pass":    func(s *story, args []string) { pass(duration(args[0])) },
	"stall":   func(s *story, args []string) { s.stalls(duration(args[0])) },
	"slow":    func(s *story, args []string) { s.launcher.slow = duration(args[0]) },
	"next":    func(s *story, args []string) { s.next(duration(cmp.Or(strings.Join(args, ""), "0"))) },
	"mute": func(s *story, _ []string) { // an alarm that is about to ring
		s.due = s.web().alarm
		s.due.timer.Stop()
	},
	"rings": func(s *story, _ []string) { // unless another alarm was set meanwhile
		s.super.post(func() {
			if s.web().alarm == s.due {
				s.web().ring(s.due)
			}
		})
	},
	"broken":  func(s *story, _ []string) { s.loadErr = errors.New("config.toml:3: unknown key") },
	"hang":    func(s *story, args []string) { s.gate(args[0]).shut.Store(true) },
	"free":    func(s *story, args []string) { s.gate(args[0]).shut.Store(false) },
	"release": func(s *story, args []string) { s.gate(args[0]).open <- struct{}{} },
	"stuck": func(s *story, args []string) { // as many looks at the files of a program as may be
		over, cancel := context.WithCancel(s.Context())
		cancel()
		hangs := func() (any, error) { <-s.files.open; return nil, nil }
		for range maxStuck {
			bounded(over, s.super.disks, args[0], lookingUp, hangs) //nolint:errcheck // it hangs
		}
	},
	"deaf":  func(s *story, _ []string) { s.launcher.systemd.deaf = errors.ErrUnsupported },
	"hears": func(s *story, _ []string) { s.launcher.systemd.deaf = nil },

	"connects": func(s *story, args []string) {
		for range number(args[0]) {
			s.connect()
		}
	},
	"connect": func(s *story, args []string) { s.clients[args[0]] = s.connect() },
	"begin":   func(s *story, args []string) { s.clients[args[0]] = s.begin() },
	"send":    func(s *story, args []string) { s.clients[args[0]].sends("question") },
	"hear":    func(s *story, args []string) { s.clients[args[0]].hears() },
	"accept": func(s *story, args []string) { // the next connection to a generation
		if s.clients[args[1]] = s.accept(number(args[0])); s.clients[args[1]] == nil {
			s.wrong = errors.New("none waits there")
		}
	},
	"settle":   func(s *story, _ []string) { s.settles() },
	"datagram": func(s *story, _ []string) { s.wrong = s.datagram() },
	"receive": func(s *story, _ []string) {
		for fd := range s.sockets(1) {
			_, s.wrong = unix.Read(fd, make([]byte, 10))
		}
	},
	"blind":   func(s *story, _ []string) { s.sighted = s.blind() },
	"sighted": func(s *story, _ []string) { s.sighted() },
}

func says(e life.Event) func(s *story, args []string) {
	return func(s *story, args []string) { s.each(args, false, func(w *fakeWorker) { w.events <- e }) }
}

// requests are the steps that may be refused.
var requests = map[string]func(s *story, args []string) error{
	"stop":     asked(func([]string) program.Event { return program.Stop{AskedBy: "alice"} }),
	"start":    asked(func([]string) program.Event { return program.Start{AskedBy: "alice"} }),
	"rollback": asked(func([]string) program.Event { return program.Rollback{} }),
	"promote":  asked(func(args []string) program.Event { return program.Promote{Share: number(args[0])} }),
	"abort":    asked(func(args []string) program.Event { return program.Abort{ThenReload: len(args) > 0} }),
	"scale":    asked(func(args []string) program.Event { return program.Scale{Workers: number(args[0])} }),
	"pause":    asked(func(args []string) program.Event { return program.Pause{For: duration(args[0]), AskedBy: "me"} }),
	"resume":   asked(func([]string) program.Event { return program.Unpause{} }),
	"reload":   reload(func([]string) ReloadOptions { return ReloadOptions{} }),
	"canary":   reload(func(args []string) ReloadOptions { return ReloadOptions{Canary: number(args[1])} }),
	"share":    reload(func(args []string) ReloadOptions { return ReloadOptions{Share: number(args[1])} }),
}

func asked(event func(args []string) program.Event) func(s *story, args []string) error {
	return func(s *story, args []string) (err error) {
		s.ticket, err = s.super.Act(s.Context(), args[0], event(args[1:]))
		return err
	}
}

// reload reloads the programs that the words name, which no number does; all: all of them.
func reload(options func(args []string) ReloadOptions) func(s *story, args []string) error {
	return func(s *story, args []string) error {
		o := options(args)
		for _, word := range args {
			if _, err := strconv.Atoi(word); err != nil && word != "all" {
				o.Programs = append(o.Programs, word)
			}
		}
		_, err := s.super.Reload(s.Context(), o)
		return err
	}
}

// shows are what steps compare.
var shows = map[string]func(s *story, args []string) any{
	"started": func(s *story, _ []string) any { return len(s.workers()) },
	// the programs that have a worker, one word for each; and those whose worker was told to stop
	"lives": func(s *story, _ []string) any { return s.programsOf(func(*fakeWorker) bool { return true }) },
	"stopping": func(s *story, _ []string) any {
		return s.programsOf(func(w *fakeWorker) bool { return len(w.signals()) > 0 })
	},
	"told": func(s *story, _ []string) any { // the workers that have got TERM
		return words(s.workers(), func(i int, w *fakeWorker) string {
			return map[bool]string{true: strconv.Itoa(i + 1)}[slices.Contains(w.signals(), syscall.SIGTERM)]
		})
	},
	"received": func(s *story, args []string) any {
		return words(s.worker(args[0]).signals(), func(_ int, sig syscall.Signal) string {
			return strings.TrimPrefix(unix.SignalName(sig), "SIG")
		})
	},
	"command":   func(s *story, args []string) any { return strings.Join(s.worker(args[0]).spec.Command, " ") },
	"directory": func(s *story, args []string) any { return filepath.Base(s.worker(args[0]).spec.Directory) },
	"watchdog":  func(s *story, args []string) any { return s.worker(args[0]).spec.Watchdog },
	"pulse":     func(s *story, args []string) any { return s.web().workers[number(args[0])].pulse != nil },
	"adopted": func(s *story, _ []string) any {
		return words(s.launcher.adopted, func(_ int, a worker.Adoption) string {
			return fmt.Sprint(a.State.PID, slices.Collect(maps.Keys(a.Descriptors)))
		})
	},
	"probes": func(s *story, _ []string) any { return s.probes.Load() },
	"probed": func(s *story, _ []string) any { return s.probed.Load() },

	"programs": func(s *story, _ []string) any { return strings.Join(s.super.programs.names(), " ") },
	"summary":  func(s *story, args []string) any { return s.all().Program(args[0]).Summary },
	"asked":    func(s *story, args []string) any { return s.super.programs[args[0]].core.Trial.AskedBy },
	"failed": func(s *story, args []string) any { // the newest reload
		f := s.super.programs[args[0]].core.Reloads
		if r := f[len(f)-1]; r.Failure != nil {
			return r.Failure.Step + ": " + r.Failure.Reason
		}
		return ""
	},
	"reload": func(s *story, args []string) any {
		r := s.reloadTo(args[0])
		return string(r.Outcome) + ", " + r.Reason
	},
	"pending": func(s *story, _ []string) any { // the reload that the next supervisord begins
		if r := s.super.reader.pending(); r != nil {
			return fmt.Sprintf("%s, all %t", r.Reason, r.All)
		}
		return ""
	},
	"due": func(s *story, _ []string) any {
		if due := s.status().Due; due != nil {
			return due.Reason + ": " + due.Waits
		}
		return ""
	},
	"paused": func(s *story, _ []string) any { // by whom
		if p := s.status().Paused; p != nil {
			return p.AskedBy
		}
		return ""
	},
	"generations": func(s *story, _ []string) any { // number, role, share
		return strings.Join(collected(s.status().Generations, func(_ int, g GenerationStatus) string {
			return fmt.Sprintf("%d %s %d", g.Number, g.Role, g.Share) + map[bool]string{true: " held"}[g.Held] +
				map[bool]string{true: " for a time"}[!g.KeptTill.IsZero()]
		}), ", ")
	},
	"timers": func(s *story, _ []string) any { // that web has, and its first worker
		p := s.web()
		return fmt.Sprint(p.alarm != nil, p.samples, p.workers[1].pulse != nil, p.capture.log != nil)
	},
	"ticket": func(s *story, _ []string) any {
		return fmt.Sprintf("from %d to %d", s.ticket.From, s.ticket.Generation)
	},
	"answer": func(s *story, args []string) any { // to what was asked
		select {
		case err := <-s.asked[args[0]]:
			return err
		default:
			return "none yet"
		}
	},

	"logged": func(s *story, args []string) any { return s.logged(strings.Join(args, " ")) },
	"why": func(s *story, args []string) any { // this was logged last; without a sentence: a worker was replaced
		all := s.logs.FilterMessage(cmp.Or(strings.Join(args, " "), program.WorkerLeaving.Sentence())).All()
		if len(all) == 0 {
			return ""
		}
		about := all[len(all)-1].ContextMap()
		return cmp.Or(about["error"], about["reason"])
	},
	"stops": func(s *story, _ []string) any { // the supervisor; and whether web serves
		return fmt.Sprintf("%t, serves %t", s.all().Stopping, s.all().Programs[0].Serves())
	},
	"ended": func(s *story, _ []string) any { // with this error
		err := <-s.done
		close(s.done)
		return err
	},
	"hanging": func(s *story, args []string) any { return s.gate(args[0]).hangs.Load() },
	// what systemd has heard: an extension of its timeout, in seconds, and a status
	"extended": func(s *story, _ []string) any { return s.launcher.systemd.extension.Load() / int64(time.Second) },
	"systemd":  func(s *story, _ []string) any { return s.launcher.systemd.status },
	"fed":      func(s *story, _ []string) any { return s.launcher.systemd.fed }, // its watchdog
	"length":   func(s *story, _ []string) any { return len(s.launcher.systemd.status) },

	"open":      func(s *story, _ []string) any { return len(s.super.table.Export()) }, // sockets
	"listeners": func(s *story, _ []string) any { return len(s.status().Listeners) },
	"handover": func(s *story, _ []string) any { // of the listener
		l := s.status().Listeners[0]
		return fmt.Sprintf("%s, %d lanes: %s", l.Handover, len(l.Lanes), l.Why)
	},
	"in-hand": func(s *story, _ []string) any { // of the generation before
		h := s.status().Generations[1].InHand
		return fmt.Sprintf("%d queued, %d unread, %d answering", h.Queued, h.Unread, h.Answering)
	},
	"reached": func(s *story, args []string) any { // by new connections; or how many of so many reach a generation
		if len(args) == 0 {
			return s.reached()
		}
		n := 0
		for range number(args[1]) {
			if s.reached() == number(args[0]) {
				n++
			}
		}
		return n
	},
	"left": func(s *story, args []string) any { // in the queues when the workers before this generation were gone
		r := s.reloadTo(args[0])
		return fmt.Sprintf("%d queued, %d reset", r.Left.Queued, r.Reset)
	},
	"ends": func(s *story, args []string) any { // a connection, and how
		fd := s.clients[args[0]].fd
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000); n != 1 || err != nil {
			return "not"
		}
		_, err := unix.Read(fd, make([]byte, 100))
		return err
	},
	"queued": func(s *story, args []string) (is any) { // for the slot of a generation
		s.looks(func(web *runner, _ *socket.Table) {
			is = queued(web.generations[number(args[0])].lanes[0].FD(number(args[1])))
		})
		return is
	},
	"looks": func(s *story, _ []string) (n any) { // how many continue
		s.looks(func(web *runner, _ *socket.Table) { n = len(web.quiet) })
		return n
	},
	// within so many ms
	"answered": func(s *story, args []string) any { return s.clients[args[0]].connected(number(args[1])) },
}

// words are what f makes of each element, but for empty ones.
func words[V any](all []V, f func(int, V) string) string {
	return strings.Join(strings.Fields(strings.Join(collected(all, f), " ")), " ")
}

func collected[V any](all []V, f func(int, V) string) (texts []string) {
	for i, v := range all {
		texts = append(texts, f(i, v))
	}
	return texts
}

func (s *story) web() *runner                    { return s.super.programs["web"] }
func (s *story) worker(start string) *fakeWorker { return s.workers()[number(start)-1] }

// reloadTo is the record of the reload of web to a generation.
func (s *story) reloadTo(generation string) *program.ReloadRecord {
	st := s.status()
	return st.FindReload(number(generation))
}

// gate is that of the configuration or of the watched files.
func (s *story) gate(of string) *gate {
	return map[string]*gate{"configuration": &s.files, "watched": &s.watcher.gate}[of]
}

// of returns the workers of a program that were started and live.
func (s *stage) of(name string) (list []*fakeWorker) {
	for _, w := range s.workers() {
		if !w.gone && slices.Contains(w.spec.Environment, "SUPERVISORD_PROGRAM="+name) {
			list = append(list, w)
		}
	}
	return list
}

// programsOf names the program of each worker that lives and is of this kind, in the order of the names.
func (s *story) programsOf(kind func(*fakeWorker) bool) string {
	return words(s.super.programs.names(), func(_ int, name string) string {
		return words(s.of(name), func(_ int, w *fakeWorker) string { return map[bool]string{true: name}[kind(w)] })
	})
}

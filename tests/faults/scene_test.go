//go:build amd64

package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/worker/graceful"
)

// workerWord is the first argument of a test binary that is to be a worker with an HTTP server on two listeners.
const workerWord = "answer-on-two-listeners"

func answerOnTwoListeners() error {
	var servers []graceful.Server
	for _, name := range []string{"http", "path"} {
		ln, err := graceful.Listener(name, "")
		if err != nil {
			return err
		}
		servers = append(servers, graceful.HTTP(ln,
			&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, "generation=%s word=%s pid=%d\n", os.Getenv("SUPERVISORD_GENERATION"), os.Getenv("WORD"),
					os.Getpid())
			})}))
	}
	fmt.Println("a worker of generation", os.Getenv("SUPERVISORD_GENERATION"))
	return graceful.Options{Linger: 2 * time.Second}.Serve(context.Background(), servers...)
}

// config is that of the supervisord whose calls fail.
const config = `pid_file = "{dir}/p.pid"
[program.web]
command = [{self}, "` + workerWord + `"]
environment_file = ["{dir}/web.env"]
directory = "{dir}"
stdout = "capture"
stderr = "{dir}/err.log"
compat.status_file = "{dir}/web.status"
drain = { timeout = "200ms" } # the unix socket is shared, so the old generation often has a connection until then
stop = { timeout = "40s" }
log = { file = "{dir}/out.log", max_size = "1MiB", max_files = 2 }
{more}
[program.web.ready]
method = "notify"
accepts = false
timeout = "40s"
[program.web.hooks]
after_reload = ["sh", "-c", "cat >>{dir}/hooks"]
[[program.web.listen]]
name = "http"
address = "{address}"
[[program.web.listen]]
name = "path"
address = "{other}"
[[program.web.listen]]
name = "udp"
address = "{third}"
`

// patience is how long an operation may take, and what it leaves to be finished.
const patience = 3 * time.Minute

// soon is a context that ends when an operation has taken too long.
func soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	time.AfterFunc(patience, cancel)
	return ctx
}

// scene is a supervisord behind a seam, with clients.
type scene struct {
	t      *trouble
	m      *lab.Supervisord
	seam   *seam
	client *control.Client

	address   string
	other     string // address
	load      *load.Load
	lost      atomic.Int64
	loss      atomic.Value // the text of the last one
	usual     map[string]int
	orphaned  bool // supervisord was killed
	several   bool // workers
	keeps     bool // the generation before
	processes int  // supervisord and its workers
}

// trouble is the testing.TB of a scene. It collects what goes wrong, instead of failing the test at once, and ends the
// scene where a test would end.
type trouble struct {
	testing.TB
	all []string
}

// over is the panic that ends a scene.
type over struct{}

func (b *trouble) Errorf(format string, a ...any) { b.all = append(b.all, fmt.Sprintf(format, a...)) }
func (b *trouble) Error(a ...any)                 { b.all = append(b.all, fmt.Sprint(a...)) }
func (b *trouble) Fatalf(format string, a ...any) { b.Errorf(format, a...); panic(over{}) }
func (b *trouble) Fatal(a ...any)                 { b.Error(a...); panic(over{}) }
func (b *trouble) Failed() bool                   { return false }

// safely calls f, and returns everything that went wrong.
func (b *trouble) safely(f func() error) (err error) {
	b.all = nil
	defer func() {
		if r := recover(); r != nil && r != any(over{}) {
			panic(r)
		}
		if len(b.all) > 0 {
			err = errors.Join(err, errors.New(strings.Join(b.all, "; ")))
		}
	}()
	return f()
}

// begin starts a supervisord and its clients, does the operation once, and notes what supervisord holds then.
func begin(test testing.TB, o operation) *scene {
	t := &trouble{TB: test}
	m := lab.Prepare(t)
	m.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"} // the hook's sh is looked for in each directory
	m.File("web.env", "WORD=hello\n")
	sc := &scene{t: t, m: m, client: control.NewClient(m.Path("run/control.sock")), seam: &seam{dir: m.Dir},
		keeps: o.keeps, processes: 2}
	sc.configure(o)
	if o.more != "" {
		sc.several, sc.processes = true, 3
	}
	lab.Must(test, sc.t.safely(func() error {
		lab.Must(t, sc.launch())
		if !o.fresh {
			sc.press()
			lab.Must(t, sc.reload()) // a rollback needs a generation that is kept
			lab.Must(t, o.do(sc))
		}
		for range 3 {
			lab.Must(t, sc.reload())
		}
		sc.usual = sc.settled()
		if o.fresh {
			m.Finish()
		}
		return nil
	}))
	return sc
}

// configure writes the configuration. Only TCP can be paused and kept.
func (sc *scene) configure(o operation) {
	third := "127.0.0.1:0"
	sc.address, sc.other = lab.Reserve(sc.t), "unix:"+sc.m.Path("web.sock")
	switch {
	case o.tcp || o.keeps:
		sc.other = lab.Reserve(sc.t)
	default:
		third = "udp:" + third
	}
	sc.m.Write(strings.NewReplacer("{self}", fmt.Sprintf("%q", lab.Built.Self), "{more}", o.more,
		"{address}", sc.address, "{other}", sc.other, "{third}", third).Replace(config))
}

// launch starts supervisord and waits until it serves; the error says that it has ended instead.
func (sc *scene) launch() error {
	sc.seam.launch(sc.m, "-c", sc.m.Path("config.toml"))
	lab.Must(sc.t, until(patience, func() error {
		if !sc.m.Over() && sc.m.Count(lab.Says(lab.GenerationServes)) == 0 {
			return errors.New("supervisord has neither begun to serve nor ended")
		}
		return nil
	}))
	if sc.m.Over() {
		sc.m.Wait()
		until(patience, func() error { //nolint:errcheck // its last words are on their way
			if sc.m.Count(lab.Contains("supervisord: ")) == 0 {
				return errors.New("it has not said why")
			}
			return nil
		})
		return fmt.Errorf("supervisord has ended with exit code %d: %s", sc.m.Cmd.ProcessState.ExitCode(), sc.m.Log)
	}
	return nil
}

// press puts clients on the listeners: with new connections and with keep-alive.
func (sc *scene) press() {
	sc.load = load.New(func(a load.Attempt) {
		if a.Lost != nil {
			sc.loss.Store(a.Lost.Text)
			sc.lost.Add(1)
		}
	})
	pause := func() time.Duration { return 3 * time.Millisecond }
	ask := load.Get("http://test/", nil)
	kept := func(c *load.Wire, last bool) (bool, error) {
		// for a while: an orphan is told to stop when it has no connection, or after drain.timeout
		return ask(c, last || rand.IntN(20) == 0)
	}
	for _, s := range []*load.Driver{
		{Dial: load.Dial(sc.address), Ask: ask, Timeout: lab.AnswerTimeout},
		{Dial: load.Dial(sc.address), Ask: kept, Timeout: lab.AnswerTimeout, Keep: 1},
		{Dial: load.Dial(sc.other), Ask: ask, Timeout: lab.AnswerTimeout},
	} {
		sc.load.Loop(s, 1, 0, pause)
	}
}

// end ends the clients and supervisord, and returns what it left behind.
func (sc *scene) end() error {
	if sc.load != nil {
		sc.load.Abandon()
	}
	sc.client.Close()
	defer sc.m.Sweep() // orphans, if no supervisord runs
	return sc.t.safely(func() error { sc.m.Finish(); return nil })
}

// last is the last line of the log before an operation.
func (sc *scene) last(o operation) lab.Entry {
	if o.launches {
		return lab.Entry{} // the log will be a new one
	}
	return sc.m.Last()
}

// excerpt is the log after a line, in short form.
func (sc *scene) excerpt(after lab.Entry) string {
	lines, _ := sc.m.Log.All(lab.After(after))
	var b strings.Builder
	for _, l := range lines[:min(len(lines), 60)] {
		fmt.Fprintln(&b, "   ", l.Short())
	}
	return b.String()
}

// holdings counts what supervisord holds: descriptors by kind, processes, files by name.
func (sc *scene) holdings() map[string]int {
	all := map[string]int{}
	for _, to := range lab.Descriptors(sc.t, sc.m.PID()) {
		kind, _, _ := strings.Cut(to, ":[")
		all["descriptor "+sc.seam.general(kind)]++
	}
	all["processes"] = len(sc.m.Processes())
	filepath.WalkDir(sc.m.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.HasSuffix(path, ".lock") { // such a file is used again
			all["file "+sc.seam.general(path)]++
		}
		return nil
	})
	return all
}

// answers asks on both listeners who serves.
func (sc *scene) answers() (who string, err error) {
	var said [2]string
	for i, at := range []string{sc.address, sc.other} {
		if said[i], err = lab.Get(at, "/"); err != nil {
			return "", fmt.Errorf("%s does not answer: %w", at, err)
		}
		if !strings.Contains(said[i], " word=hello ") {
			return "", fmt.Errorf("the environment file is missing: %s", said[i])
		}
	}
	if said[0] != said[1] && !sc.several {
		return "", fmt.Errorf("the listeners disagree: %s %s", said[0], said[1])
	}
	if sc.several {
		said[0], _, _ = strings.Cut(said[0], " pid=")
	}
	return said[0], nil
}

// until waits until holds returns no error, and returns the last one if that takes too long.
func until(limit time.Duration, holds func() error) (err error) {
	pause := 2 * time.Millisecond
	for end := time.Now().Add(limit); ; time.Sleep(pause) {
		if err = holds(); err == nil || time.Now().After(end) {
			return err
		}
		pause = min(2*pause, 50*time.Millisecond) // what holds asks may cost more than what it waits for
	}
}

// sound returns what is wrong after an operation, whose client was told failed; nil: nothing. after is the last line of
// the log before it, and before the worker that served.
func (sc *scene) sound(o operation, after lab.Entry, before string, f fault, failed error) error {
	err := until(patience, func() error { // the log may be on its way
		if failed != nil && !sc.named(after, f, failed) {
			return fmt.Errorf("neither the client nor the log was told the cause: %w", failed)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if o.launches && !lab.Alive(sc.m.PID()) {
		return sc.ended(o, before)
	}
	if err := sc.lives(); err != nil {
		return err
	}
	// What could not be steered is steered again a second later.
	if err := until(patience, func() error { return sc.truth(o, before, failed) }); err != nil {
		return err
	}
	if err := sc.recovers(); err != nil || !o.fresh {
		return err
	}
	sc.m.Finish()
	return nil
}

// truth returns an error unless clients are answered by whom the answer to the operation makes them expect.
func (sc *scene) truth(o operation, before string, failed error) error {
	now, err := sc.answers()
	switch {
	case err != nil:
		return err
	case failed == nil && o.changes && now == before:
		return fmt.Errorf("the client was told that it worked, but %s still serves", now)
	case (failed != nil || !o.changes) && now != before:
		return fmt.Errorf("%s serves, but the client was told: %w", now, failed)
	}
	return nil
}

// ended returns what is wrong after a start that has failed.
func (sc *scene) ended(o operation, before string) error {
	code := sc.m.Cmd.ProcessState.ExitCode()
	switch {
	case code <= 0:
		return fmt.Errorf("supervisord has ended with %s", sc.m.Cmd.ProcessState)
	case sc.crashes() != nil:
		return sc.crashes()
	case o.fresh:
		sc.m.Ends(code) // and nothing is left
		return nil
	}
	if now, err := sc.answers(); err != nil || now != before {
		return fmt.Errorf("without a supervisord, %q serves, before %q (%w)", now, before, err)
	}
	if err := sc.launch(); err != nil {
		return fmt.Errorf("the next start: %w", err)
	}
	return sc.recovers()
}

// lives returns an error if supervisord has ended or has lost a request.
func (sc *scene) lives() error {
	if !lab.Alive(sc.m.PID()) {
		return errors.New("supervisord has ended")
	}
	if n := sc.lost.Swap(0); n > 0 {
		return fmt.Errorf("%d requests were lost, such as: %v", n, sc.loss.Load())
	}
	return sc.crashes()
}

// crashes returns an error if Go has written why it ends a program.
func (sc *scene) crashes() error {
	for _, text := range []string{"panic", "goroutine ", "fatal error"} {
		if found, _ := sc.m.Log.All(lab.Contains(text)); len(found) > 0 {
			return fmt.Errorf("the log has %q", found[0].Text)
		}
	}
	return nil
}

// named reports whether the client or the log was told of the fault.
func (sc *scene) named(after lab.Entry, f fault, failed error) bool {
	text := f.errno.Error()
	if f.half || errors.Is(failed, control.ErrBroken) {
		return true // the reader of half a file sees no error; a client whose connection has broken asks again
	}
	if sc.orphaned && strings.Contains(failed.Error(), "address already in use") {
		return true // by an orphan whose sockets could not be seen
	}
	return strings.Contains(failed.Error(), text) || sc.m.Count(lab.After(after), lab.Contains(text)) > 0
}

func (sc *scene) withoutOrphans() error {
	st, err := sc.client.Status(soon(), "web", false)
	if err == nil && len(st.Programs[0].Orphans) > 0 {
		err = fmt.Errorf("the orphans %v are still there", st.Programs[0].Orphans)
	}
	return err
}

// recovers returns an error if the next reloads do not work or if something was leaked.
func (sc *scene) recovers() error {
	var leaked error
	reachable := func() error { _, err := sc.client.Status(soon(), "", false); return err }
	if err := until(patience, reachable); err != nil { // a control socket that could not be opened is tried again
		return err
	}
	// With three lanes in use, a death without a store can close the lane to which the kernel sends half of the
	// connections in that moment (docs/reliability.md). So the orphan goes first.
	if err := until(patience, sc.withoutOrphans); err != nil {
		return err
	}
	// What the operation itself has left may need one more reload: hence the short wait, which any machine may exceed.
	for _, limit := range []time.Duration{3 * time.Second, patience} {
		if err := sc.reload(); err != nil {
			return fmt.Errorf("the next reload fails: %w", err)
		}
		if err := sc.lives(); err != nil {
			return fmt.Errorf("after the next reload: %w", err)
		}
		leaked = until(limit, func() error { return sc.difference(sc.holdings()) })
		if leaked == nil {
			_, err := sc.answers()
			return err
		}
	}
	return leaked
}

// settled waits until supervisord has finished what it did, and returns what it holds.
func (sc *scene) settled() (all map[string]int) {
	same := 0
	err := until(patience, func() error {
		now := sc.holdings()
		if same++; !maps.Equal(all, now) || now["processes"] != sc.processes {
			all, same = now, 0
		}
		if same < 6 {
			return errors.New("supervisord opens and closes descriptors all the time")
		}
		return nil
	})
	lab.Must(sc.t, err)
	return all
}

// difference says what supervisord holds more or less than usual.
func (sc *scene) difference(have map[string]int) error {
	want := maps.Clone(sc.usual)
	// lanes are kept to be used again; a leak soon comes to more
	few := []string{"descriptor socket", "file {dir}/.web.sock.*"}
	if sc.orphaned {
		few = append(few, "file {dir}/run/*/*") // the next start removes what orphans have left
	}
	for _, kind := range few {
		if more := have[kind] - want[kind]; -2 <= more && more <= 2 {
			delete(have, kind)
			delete(want, kind)
		}
	}
	for kind := range want {
		// another thread has it open, in case its file system hangs: package apart
		apart := kind == "descriptor {dir}/out.log"
		runtime := strings.HasPrefix(kind, "descriptor /sys/fs/cgroup/") // Go's runtime has it open if it could at its start
		// it is tried again when a listener or the configuration changes
		watch := kind == "descriptor anon_inode:inotify"
		if (apart || runtime || watch) && have[kind] == 0 {
			have[kind] = want[kind]
		}
	}
	all := maps.Clone(have)
	maps.Copy(all, want)
	var words []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if have[k] != want[k] {
			words = append(words, fmt.Sprintf("%s: %d, before %d", k, have[k], want[k]))
		}
	}
	if words == nil {
		return nil
	}
	return fmt.Errorf("something was left, or has gone: %s", strings.Join(words, "; "))
}

package supervisor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
)

// layouts are the configurations: which program listens at which of two addresses. A program has the same ones in all.
var layouts = []map[string]string{
	{"web": "01"}, {"shop": "10"}, {"api": "0", "app": "1"}, {"other": "0", "app": "1"},
	{"api": "0", "app": "1", "none": ""},
}

// TestAnyProgramsThatReplaceOneAnotherServe changes the configuration at random, while workers get ready, die before
// they are, and end when they are told to, and supervisord is upgraded. From the moment when somebody has served at an
// address, new connections there reach a worker that is ready and was not told to stop.
func TestAnyProgramsThatReplaceOneAnotherServe(t *testing.T) {
	at := []string{reserve(t), reserve(t)}
	rapid.Check(t, func(rt *rapid.T) {
		history := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) [2]int { // a move and its argument
			return [2]int{rapid.IntRange(0, len(replacing)-1).Draw(rt, "move"), rapid.IntRange(0, 59).Draw(rt, "n")}
		}), 1, 16).Draw(rt, "history")
		var faults []string
		synctest.Test(t, func(t *testing.T) {
			r := &replacement{story: &story{stage: newStage(t)}, at: at, ready: map[string]bool{}, told: map[string]bool{}}
			r.launcher.systemd.unchecked = true // or most of the time would go there
			r.configure(0)
			if err := r.super.Start(r.conf, nil); err != nil {
				t.Fatal(err)
			}
			r.run()
			for _, m := range history {
				r.log = append(r.log, replacing[m[0]](r, m[1]))
				synctest.Wait()
				faults = r.look()
				synctest.Wait()
				if len(faults) > 0 {
					faults = append(r.log, faults...)
					break
				}
			}
			r.end()
		})
		if len(faults) > 0 {
			rt.Fatalf("%s", strings.Join(faults, "\n"))
		}
	})
}

// reserve returns an address that the kernel gives to no other process: a socket that does not listen is bound there.
func reserve(t *testing.T) string {
	fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { unix.Close(fd) })
	must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	must.Do(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name := must.Get(unix.Getsockname(fd))(t)
	return fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
}

// replacement is a story without a text. It knows its workers by program, generation and slot, also after an upgrade.
type replacement struct {
	*story
	at          []string
	served      [2]bool // somebody has, at this address
	ready, told map[string]bool
	log         []string
}

// replacing are the moves; those that matter most stand here more than once. Each says what it has done.
var replacing = []func(r *replacement, n int) string{
	(*replacement).reload, (*replacement).reload, (*replacement).becomesReady, (*replacement).becomesReady,
	(*replacement).becomesReady, (*replacement).dies, (*replacement).goes, (*replacement).goes, (*replacement).pass,
	(*replacement).upgrade,
}

// configure writes a layout, with other workers for each n.
func (r *replacement) configure(n int) {
	r.programs = nil
	layout := layouts[n%len(layouts)]
	for _, name := range slices.Sorted(maps.Keys(layout)) {
		places := layout[name]
		p := testProgram(r.T, name)
		p.Command, p.Listen = []string{name, fmt.Sprint(len(r.log))}, nil
		p.Workers = 1 + n/len(layouts)%2
		p.Drain = config.DrainPolicy{Timeout: 10 * time.Second, Silence: 100 * time.Millisecond}
		p.Reload.Strategy = []config.Strategy{config.All, config.Rolling}[n/len(layouts)/2%2]
		for _, place := range places {
			p.Listen = append(p.Listen, socket.Spec{Name: string(place), Address: addr(r.at[place-'0']),
				Handover: socket.Steer, Rolling: p.Reload.Strategy == config.Rolling})
		}
		r.programs = append(r.programs, p)
	}
	r.story.configure()
}

func (r *replacement) reload(n int) string {
	r.configure(n)
	r.hup()
	return fmt.Sprintf("reload %v, %d", layouts[n%len(layouts)], n/len(layouts))
}

// whose is the program, generation and slot of a worker.
func whose(w *fakeWorker) string {
	var words []string
	for _, name := range []string{"PROGRAM", "GENERATION", "SLOT"} {
		for _, v := range w.spec.Environment {
			if value, is := strings.CutPrefix(v, "SUPERVISORD_"+name+"="); is {
				words = append(words, value)
			}
		}
	}
	return strings.Join(words, " ")
}

// which is the nth of the workers that live and are so; nil: none is.
func (r *replacement) which(n int, is func(id string) bool) *fakeWorker {
	var found []*fakeWorker
	for _, w := range r.workers() {
		id := whose(w)
		r.told[id] = r.told[id] || slices.Contains(w.signals(), syscall.SIGTERM)
		if !w.gone && is(id) {
			found = append(found, w)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[n%len(found)]
}

// does has the nth worker that is so do something.
func (r *replacement) does(n int, what string, is func(id string) bool, f func(w *fakeWorker)) string {
	w := r.which(n, is)
	if w == nil {
		return ""
	}
	f(w)
	return whose(w) + " " + what
}

func (r *replacement) starting(id string) bool { return !r.ready[id] && !r.told[id] }

func (r *replacement) becomesReady(n int) string {
	return r.does(n, "is ready", r.starting, func(w *fakeWorker) { r.ready[whose(w)] = true; w.ready() })
}

func (r *replacement) dies(n int) string {
	return r.does(n, "dies", r.starting, func(w *fakeWorker) { w.crash() })
}

func (r *replacement) goes(n int) string {
	return r.does(n, "goes", func(id string) bool { return r.told[id] }, func(w *fakeWorker) { w.exit() })
}

func (r *replacement) pass(n int) string {
	pass(time.Duration(1+n%12) * time.Second)
	return "time passes"
}

func (r *replacement) upgrade(int) string {
	r.which(0, func(string) bool { return false }) // what the workers were told
	r.next(0)
	r.launcher.systemd.unchecked = true
	return "upgrade"
}

// look connects to each address, and returns what is wrong.
func (r *replacement) look() (faults []string) {
	for i, at := range r.at {
		who, serves := r.reaches(at)
		if r.served[i] = r.served[i] || serves; r.served[i] && who != "ready" {
			faults = append(faults, fmt.Sprintf("a connection to %d reaches %s", i, who))
		}
	}
	var known []string
	r.looks(func(_ *runner, _ *socket.Table) {
		for p := range r.super.programs.all() {
			if !p.removed {
				known = append(known, p.core.Name)
			}
		}
	})
	want := collected(r.programs, func(_ int, p *config.Program) string { return p.Name })
	if !slices.Equal(known, want) {
		faults = append(faults, fmt.Sprintf("configured are %v, and known %v", want, known))
	}
	return faults
}

// reaches says which workers have the socket that a new connection to an address reaches, and whether a version serves
// there.
func (r *replacement) reaches(at string) (who string, serves bool) {
	sockets, workers := []int{}, map[int][]string{} // whose are the sockets
	r.looks(func(_ *runner, table *socket.Table) {
		for name, p := range r.super.programs {
			for _, cg := range p.core.Generations() {
				g := p.generations[cg.Number]
				i := slices.IndexFunc(g.lanes, func(ln *socket.Lane) bool { return ln.Listener.Address.String() == at })
				if i < 0 {
					continue
				}
				ln := g.lanes[i]
				sockets = table.FDs(ln.Listener.Key())
				serves = serves || cg == p.core.Serving
				for slot := range cg.Slots {
					workers[ln.FD(slot)] = append(workers[ln.FD(slot)], fmt.Sprintf("%s %d %d", name, cg.Number, slot))
				}
			}
		}
	})
	if len(sockets) == 0 {
		return "no socket", serves
	}
	fd := must.Get(dial(sockets[0]))(r.T)
	c := &client{r.T, fd}
	defer c.close()
	if !c.connected(500) {
		return "nobody", serves
	}
	reached := r.accepts(sockets, must.Get(unix.Getsockname(fd))(r.T))
	ids := workers[reached]
	if r.which(0, func(id string) bool { return slices.Contains(ids, id) && r.ready[id] && !r.told[id] }) != nil {
		return "ready", serves
	}
	return fmt.Sprint(ids), serves
}

// accepts accepts what waits in these sockets, and returns the one in which a connection from this address did.
func (r *replacement) accepts(sockets []int, from unix.Sockaddr) (reached int) {
	for _, fd := range sockets {
		for queued(fd) {
			accepted, peer, err := unix.Accept(fd)
			must.Do(r.T, err)
			unix.Close(accepted)
			if peer.(*unix.SockaddrInet4).Port == from.(*unix.SockaddrInet4).Port {
				reached = fd
			}
		}
	}
	return reached
}

package record

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
)

// fakeSystemd is a file-descriptor store that takes a limited number of messages. It notes only the names.
type fakeSystemd struct {
	has      map[string]int // descriptors
	room     int
	writable chan struct{}
	broken   error
}

func newSystemd() *fakeSystemd {
	return &fakeSystemd{has: map[string]int{}, room: 1_000_000, writable: make(chan struct{}, 1)}
}

func (s *fakeSystemd) message() error {
	if s.broken != nil {
		return s.broken
	}
	if s.room == 0 {
		return systemd.ErrBusy
	}
	s.room--
	return nil
}

func (s *fakeSystemd) StoreFD(name string, fds ...int) error {
	err := s.message()
	if err == nil {
		s.has[name] += len(fds)
	}
	return err
}

func (s *fakeSystemd) RemoveFD(name string) error {
	err := s.message()
	if err == nil {
		delete(s.has, name)
	}
	return err
}

func (s *fakeSystemd) Writable() <-chan struct{} { return s.writable }

// reads makes room for n messages.
func (s *fakeSystemd) reads(n int) {
	s.room += n
	s.writable <- struct{}{}
}

func (s *fakeSystemd) names() []string { return slices.Sorted(maps.Keys(s.has)) }

// fakeSource is a supervisor with sockets, and with workers that each have a process and a notify socket.
type fakeSource struct {
	*testing.T
	sockets, workers []string
	filters          map[string]Adoptable
	bare             int // the number of a worker that has no descriptors yet
}

func (s *fakeSource) Head() *Record { return &Record{} }

func (s *fakeSource) Filters() map[string]Adoptable { return s.filters }

func (s *fakeSource) Programs() []string {
	names := slices.DeleteFunc(slices.Clone(s.workers), func(name string) bool { return name == "" })
	slices.Sort(names)
	return slices.Compact(names)
}

// Program returns a program that has no more than a generation of workers, whose numbers are their places in s.
func (s *fakeSource) Program(name string) *ProgramRecord {
	g := &program.Generation{Number: 1, Config: &config.Program{Name: name}}
	for i, of := range s.workers {
		if of == name {
			g.Workers = append(g.Workers, &program.Worker{
				Standing: program.Standing{Number: i + 1, State: program.Stopping}})
		}
	}
	core := program.New(g.Config)
	core.Draining = []*program.Generation{g}
	held := func(number int) (Adoptable, int) {
		if number == s.bare {
			return bareHandle{}, 1
		}
		if number <= len(s.workers) && s.workers[number-1] == name {
			return fakeHandle{}, 1
		}
		return nil, 0
	}
	return &ProgramRecord{Core: core, Generations: map[int]GenerationRecord{1: {}}, Held: held}
}

func (s *fakeSource) Sockets() []socket.Named {
	var all []socket.Named
	for _, name := range s.sockets {
		all = append(all, socket.Named{Name: name, FD: int(os.Stdin.Fd())})
	}
	return all
}

type fakeHandle struct{}

func (fakeHandle) State() worker.State           { return worker.State{PID: 4711, Ready: true} }
func (fakeHandle) Duplicate(string) (int, error) { return duplicate(int(os.Stdin.Fd())) }

func (fakeHandle) Descriptors() map[string]int {
	return map[string]int{worker.FDProcess: 0, worker.FDNotify: 0}
}

// bareHandle is a worker that is being started.
type bareHandle struct{ fakeHandle }

func (bareHandle) Descriptors() map[string]int { return nil }

// fakeFilter is what a worker that has ended has left.
type fakeFilter struct{ fakeHandle }

func (fakeFilter) Descriptors() map[string]int { return map[string]int{worker.FDBind: 0} }

// newStore returns a store whose memfds are closed when the test ends.
func newStore(t *testing.T, to FDStore, h *Inheritance) (*Store, *observer.ObservedLogs) {
	core, logs := observer.New(zap.InfoLevel)
	s := NewStore(to, zap.New(core))
	if h != nil {
		s.Inherit(h)
	}
	t.Cleanup(func() {
		for _, fd := range s.written.files() {
			unix.Close(fd)
		}
	})
	return s, logs
}

// all are the programs of the tests.
var all = []string{"web", "a", "b"}

const web = "s.http.0123456789abcdef.0.n"

func TestStoreHoldsExactlyTheLivingDescriptors(t *testing.T) {
	sd := newSystemd()
	sd.has["unit"], sd.has["w.web.9.pidfd"], sd.has["w.web.8"] = 1, 1, 2
	h := newInheritance()
	h.stored = map[string]int{"unit": 1, "w.web.9.pidfd": 1, "w.web.8": 2}
	s, logs := newStore(t, sd, h)
	s.Keep(&fakeSource{T: t, sockets: []string{web}, workers: []string{"web", "web"}}, all)
	s.Keep(&fakeSource{T: t, sockets: []string{web}, workers: []string{"", "web", "web"}}, all)
	want := map[string]int{web: 1, recordFirst: 1, recordSecond: 1, "unit": 1, "w.web.2": 2, "w.web.3": 2}
	if !maps.Equal(sd.has, want) || !maps.Equal(s.ledger.counts, want) || logs.Len() > 0 {
		t.Errorf("the store has %v, the ledger %v, want %v; the log %v", sd.has, s.ledger.counts, want, logs.All())
	}
	s.Keep(&fakeSource{T: t, sockets: nil, workers: []string{"", "web", "web"}}, all)
	if delete(want, web); !maps.Equal(sd.has, want) {
		t.Errorf("without the socket the store has %v", sd.has)
	}
}

// A filter outlives its worker, and then a supervisord, as long as a process has it.
func TestStoreHoldsFiltersWhoseWorkersHaveEnded(t *testing.T) {
	sd := newSystemd()
	s, _ := newStore(t, sd, nil)
	source := &fakeSource{T: t, workers: []string{"web"}}
	s.Keep(source, all)
	source.workers, source.filters = nil, map[string]Adoptable{"one": fakeFilter{}}
	s.Keep(source, all)
	if want := map[string]int{recordFirst: 1, recordSecond: 1, "f.one": 1}; !maps.Equal(sd.has, want) {
		t.Errorf("the store has %v, want %v", sd.has, want)
	}
	h := newInheritance()
	h.stored = maps.Clone(sd.has)
	next, _ := newStore(t, sd, h)
	source.filters["two"] = fakeFilter{}
	next.Keep(source, all)
	delete(source.filters, "one")
	next.Keep(source, all)
	if sd.has["f.one"] != 0 || sd.has["f.two"] != 1 {
		t.Errorf("in the end the store has %v", sd.has)
	}
}

func TestStoreOfASlowSystemdIsFilledAsThatReads(t *testing.T) {
	sd := newSystemd()
	sd.room = 3
	s, logs := newStore(t, sd, nil)
	source := &fakeSource{T: t, sockets: []string{web}, workers: []string{"a", "a", "b"}}
	s.Keep(source, all)
	if got := sd.names(); !slices.Equal(got, []string{web, recordFirst, recordSecond}) || !s.Busy() {
		t.Errorf("first the store has %v, busy: %v", got, s.Busy())
	}
	if !maps.Equal(s.ledger.counts, map[string]int{web: 1, recordFirst: 1, recordSecond: 1}) {
		t.Errorf("the ledger has %v", s.ledger.counts)
	}
	sd.reads(2)
	<-s.Writable()
	s.Push()
	if got := sd.names(); !slices.Equal(got[3:], []string{"w.a.1", "w.a.2"}) || !s.Busy() {
		t.Errorf("then the store has %v, busy: %v", got, s.Busy())
	}
	if err := s.Settle(time.Millisecond); !errors.Is(err, systemd.ErrBusy) {
		t.Errorf("systemd does not read: %v", err)
	}
	sd.reads(100)
	if err := s.Settle(time.Minute); err != nil || len(sd.has) != 6 || s.Busy() {
		t.Errorf("%v; in the end the store has %v", err, sd.names())
	}
	if logs.Len() > 0 {
		t.Errorf("the log says %v", logs.All())
	}
}

func TestStoreOfASlowSystemdForgetsAsThatReads(t *testing.T) {
	sd := newSystemd()
	s, _ := newStore(t, sd, nil)
	s.Keep(&fakeSource{T: t, workers: []string{"a", "a"}}, all)
	sd.room = 0
	s.Keep(&fakeSource{T: t, workers: []string{"a"}}, all)
	if sd.has["w.a.2"] == 0 || !s.Busy() {
		t.Fatalf("systemd has heard of it: %v", sd.names())
	}
	sd.reads(1)
	<-s.Writable()
	s.Push()
	if got := sd.names(); slices.Contains(got, "w.a.2") || s.Busy() {
		t.Errorf("the store has %v, busy: %v", got, s.Busy())
	}
}

func TestWorkerWithoutDescriptorsIsNotInTheStore(t *testing.T) {
	sd := newSystemd()
	s, _ := newStore(t, sd, nil)
	s.Keep(&fakeSource{T: t, workers: []string{"a", "a"}, bare: 2}, all)
	if got := sd.names(); slices.Contains(got, "w.a.2") || !slices.Contains(got, "w.a.1") {
		t.Errorf("the store has %v", got)
	}
}

func TestNextImageSendsUnsentMessages(t *testing.T) {
	sd := newSystemd()
	sd.room = 4
	first, _ := newStore(t, sd, nil)
	source := &fakeSource{T: t, sockets: []string{web}, workers: []string{"a", "a"}}
	first.Keep(source, all)
	h := newInheritance()
	h.stored, h.memfds = first.ledger.counts, first.written.files()
	h.Record = h.readNewest()
	sd.room = 100
	next := NewStore(sd, zap.NewNop())
	next.Inherit(h)
	next.Keep(source, all)
	if len(sd.has) != 5 || sd.room != 99 {
		t.Errorf("the store has %v after %d messages", sd.names(), 100-sd.room)
	}
}

func TestFullStoreHasTheRecordsAndTheSocketsAndIsReportedOnce(t *testing.T) {
	sd := newSystemd()
	h := newInheritance()
	h.limit = 3
	s, logs := newStore(t, sd, h)
	source := &fakeSource{T: t, sockets: []string{web}, workers: []string{"a", "b"}}
	for range 3 {
		s.Keep(source, all)
	}
	if got := sd.names(); !slices.Equal(got, []string{web, recordFirst, recordSecond}) {
		t.Errorf("the store has %v", got)
	}
	if got := logs.TakeAll(); len(got) != 1 || got[0].ContextMap()["missing"] != int64(2) ||
		!strings.Contains(fmt.Sprint(got[0].ContextMap()["error"]), "FileDescriptorStoreMax=3") {
		t.Errorf("it says %v", got)
	}
	source.sockets = nil // there is room for one descriptor, and the first worker has two
	s.Keep(source, all)
	if got := sd.names(); !slices.Equal(got, []string{recordFirst, recordSecond}) {
		t.Errorf("with room for one descriptor the store has %v", got)
	}
	s.ledger.limit = 4
	s.Keep(source, all)
	if got := sd.names(); !slices.Equal(got, []string{recordFirst, recordSecond, "w.a.1"}) {
		t.Errorf("with room for one worker the store has %v", got)
	}
	if got := logs.TakeAll(); len(got) != 1 || got[0].ContextMap()["missing"] != int64(1) {
		t.Errorf("then it says %v", got)
	}
	s.ledger.limit = 10
	s.Keep(source, all)
	if len(sd.has) != 4 {
		t.Errorf("with room again the store has %v", sd.names())
	}
	if got := logs.TakeAll(); len(got) != 1 || got[0].Level != zap.InfoLevel {
		t.Errorf("in the end it says %v", got)
	}
}

// TestNextWorkerOfANumberIsStored: a supervisord that died had stored a worker and not yet recorded it, so the next one
// gives its number, and name, to another process.
func TestNextWorkerOfANumberIsStored(t *testing.T) {
	for _, room := range []int{1_000_000, 0} {
		sd := newSystemd()
		sd.has["w.web.1"], sd.has["w.web.1.start"], sd.room = 1, 1, room
		h := newInheritance()
		h.stored = maps.Clone(sd.has)
		s, _ := newStore(t, sd, h)
		source := &fakeSource{T: t, workers: []string{"web"}}
		s.Keep(source, all)
		if room == 0 {
			sd.reads(1_000_000)
			<-sd.writable
			s.Push()
		}
		want := map[string]int{recordFirst: 1, recordSecond: 1, "w.web.1": 2}
		if !maps.Equal(sd.has, want) || !maps.Equal(s.ledger.counts, want) {
			t.Errorf("the store has %v, the ledger %v, want %v", sd.has, s.ledger.counts, want)
		}
	}
}

func TestStoreThatCannotBeReachedIsTriedAgain(t *testing.T) {
	sd := newSystemd()
	sd.broken = errors.New("connection refused")
	s, logs := newStore(t, sd, nil)
	source := &fakeSource{T: t, sockets: []string{web}, workers: nil}
	for range 2 {
		s.Keep(source, all)
	}
	if logs.Len() != 1 || len(s.ledger.counts) > 0 {
		t.Errorf("the log says %v; the ledger has %v", logs.All(), s.ledger.counts)
	}
	sd.broken = nil
	s.Keep(source, all)
	if len(sd.has) != 3 {
		t.Errorf("the store has %v", sd.names())
	}
}

func TestStoppedSupervisorLeavesNoRecordBehindEvenIfSystemdDoesNotHear(t *testing.T) {
	sd := newSystemd()
	s, _ := newStore(t, sd, nil)
	s.Keep(&fakeSource{T: t, sockets: []string{web}, workers: []string{"a"}}, all)
	sd.room = 0
	if err := s.Empty(time.Millisecond); !errors.Is(err, systemd.ErrBusy) {
		t.Errorf("it returns %v", err)
	}
	h := newInheritance()
	h.memfds = s.written.files()
	if h.Record = h.readNewest(); len(h.Problems) > 0 || h.Programs() {
		t.Errorf("the next one finds %+v (%v)", h.Record, h.Problems)
	}
	sd.room = 100
	if err := s.Empty(time.Minute); err != nil || !slices.Equal(sd.names(), []string{web}) {
		t.Errorf("%v; the store has %v", err, sd.names())
	}
}

func TestLedgerStopsBeforeTheNamesAreTooLong(t *testing.T) {
	inherited := "a:" + strings.Repeat("b", 253)
	l := newLedger(map[string]int{"a": 1, strings.Repeat("b", 253): 1}, 0)
	all := inherited
	name := func(i int) string { return fmt.Sprintf("%0255d", i) }
	var err error
	for i := 0; ; i++ {
		if err = l.fits(name(i), 1); err != nil {
			break
		}
		l.count(name(i), 1)
		all += ":" + name(i)
	}
	size := len("LISTEN_FDNAMES="+all) + 1
	if !errors.Is(err, errNamesFull) || !errors.Is(err, errStoreFull) || size > 131072 || size+256 <= 131072 {
		t.Errorf("after %d bytes: %v", size, err)
	}
	l.remove(name(0))
	if err := l.fits(name(9999), 1); err != nil {
		t.Errorf("after one left: %v", err)
	}
	l.count(name(9999), 1)
	if err := l.fits(name(10000), 1); !errors.Is(err, errNamesFull) {
		t.Errorf("one more: %v", err)
	}
}

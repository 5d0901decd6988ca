package handover

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

	"example.org/supervisord/internal/systemd"
	"example.org/supervisord/socket"
	"example.org/supervisord/worker"
)

// fakeSystemd is a file-descriptor store that takes a limited number of messages. It notes only the names.
type fakeSystemd struct {
	has      map[string]bool
	room     int
	writable chan struct{}
	broken   error
}

func newSystemd() *fakeSystemd {
	return &fakeSystemd{has: map[string]bool{}, room: 1_000_000, writable: make(chan struct{}, 1)}
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

func (s *fakeSystemd) StoreFD(name string, fd int) error {
	err := s.message()
	if err == nil {
		s.has[name] = true
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
}

func (s *fakeSource) Record() *Record { return reloading(s.T) }

func (s *fakeSource) Sockets() []socket.Named {
	var all []socket.Named
	for _, name := range s.sockets {
		all = append(all, socket.Named{Name: name, FD: int(os.Stdin.Fd())})
	}
	return all
}

func (s *fakeSource) Workers(yield func(Held) bool) {
	for i, program := range s.workers {
		if program != "" && !yield(Held{Program: program, Number: i + 1, Adoptable: fakeHandle{}}) {
			return
		}
	}
}

type fakeHandle struct{}

func (fakeHandle) State() worker.State           { return worker.State{PID: 4711} }
func (fakeHandle) Duplicate(string) (int, error) { return duplicate(int(os.Stdin.Fd())) }

func (fakeHandle) Descriptors() map[string]int {
	return map[string]int{worker.FDProcess: 0, worker.FDNotify: 0}
}

// newStore returns a store whose memfds are closed when the test ends.
func newStore(t *testing.T, to FDStore, h *Handover) (*Store, *observer.ObservedLogs) {
	core, logs := observer.New(zap.InfoLevel)
	s := NewStore(to, zap.New(core))
	if h != nil {
		s.Inherit(h)
	}
	t.Cleanup(func() {
		for _, fd := range s.records() {
			unix.Close(fd)
		}
	})
	return s, logs
}

const web = "s.http.0123456789abcdef.0.n"

func TestStoreHoldsExactlyTheLivingDescriptors(t *testing.T) {
	sd := newSystemd()
	sd.has["unit"], sd.has["w.web.9.pidfd"] = true, true
	h := newHandover()
	h.stored = map[string]int{"unit": 1, "w.web.9.pidfd": 1}
	s, logs := newStore(t, sd, h)
	for _, workers := range [][]string{{"web", "web"}, {"", "web", "web"}} {
		s.Changed()
		s.Keep(&fakeSource{t, []string{web}, workers})
	}
	want := []string{web, recordFirst, recordSecond, "unit", "w.web.2.notify", "w.web.2.pidfd", "w.web.3.notify", "w.web.3.pidfd"}
	if got := sd.names(); !slices.Equal(got, want) || logs.Len() > 0 {
		t.Errorf("the store has %v, want %v; the log %v", got, want, logs.All())
	}
}

func TestStoreOfASlowSystemdIsFilledAsThatReads(t *testing.T) {
	sd := newSystemd()
	sd.room = 3
	s, logs := newStore(t, sd, nil)
	source := &fakeSource{t, []string{web}, []string{"a", "a", "b"}}
	s.Keep(source)
	if got := sd.names(); !slices.Equal(got, []string{web, recordFirst, recordSecond}) || !s.Busy() {
		t.Errorf("first the store has %v, busy: %v", got, s.Busy())
	}
	if !maps.Equal(s.ledger.counts, map[string]int{web: 1, recordFirst: 1, recordSecond: 1}) {
		t.Errorf("the ledger has %v", s.ledger.counts)
	}
	sd.reads(3)
	<-s.Writable()
	s.Push()
	if got := sd.names(); !slices.Equal(got[3:], []string{"w.a.1.pidfd", "w.a.2.pidfd", "w.b.3.pidfd"}) || !s.Busy() {
		t.Errorf("then the store has %v, busy: %v", got, s.Busy())
	}
	if err := s.Settle(time.Millisecond); !errors.Is(err, systemd.ErrBusy) {
		t.Errorf("systemd does not read: %v", err)
	}
	sd.reads(100)
	if err := s.Settle(time.Minute); err != nil || len(sd.has) != 9 || s.Busy() {
		t.Errorf("%v; at last the store has %v", err, sd.names())
	}
	if logs.Len() > 0 {
		t.Errorf("the log says %v", logs.All())
	}
}

func TestNextImageSendsUnsentMessages(t *testing.T) {
	sd := newSystemd()
	sd.room = 4
	first, _ := newStore(t, sd, nil)
	source := &fakeSource{t, []string{web}, []string{"a", "a"}}
	first.Keep(source)
	h := newHandover()
	h.stored, h.memfds, h.sequence = first.ledger.counts, first.records(), first.sequence
	sd.room = 100
	next := NewStore(sd, zap.NewNop())
	next.Inherit(h)
	next.Keep(source)
	if len(sd.has) != 7 || sd.room != 97 {
		t.Errorf("the store has %v after %d messages", sd.names(), 100-sd.room)
	}
}

func TestFullStoreHasTheRecordsAndTheSocketsAndIsReportedOnce(t *testing.T) {
	sd := newSystemd()
	h := newHandover()
	h.limit = 3
	s, logs := newStore(t, sd, h)
	source := &fakeSource{t, []string{web}, []string{"a", "b"}}
	for range 3 {
		s.Changed()
		s.Keep(source)
	}
	if got := sd.names(); !slices.Equal(got, []string{web, recordFirst, recordSecond}) {
		t.Errorf("the store has %v", got)
	}
	if got := logs.TakeAll(); len(got) != 1 || got[0].ContextMap()["missing"] != int64(4) || !strings.Contains(fmt.Sprint(got[0].ContextMap()["error"]), "FileDescriptorStoreMax=3") {
		t.Errorf("it says %v", got)
	}
	source.sockets = nil // there is room for one
	s.Changed()
	s.Keep(source)
	if got := sd.names(); !slices.Equal(got, []string{recordFirst, recordSecond, "w.a.1.pidfd"}) {
		t.Errorf("with room for one the store has %v", got)
	}
	s.ledger.limit = 10
	s.Changed()
	s.Keep(source)
	if len(sd.has) != 6 {
		t.Errorf("with room again the store has %v", sd.names())
	}
	if got := logs.TakeAll(); len(got) != 1 || got[0].Level != zap.InfoLevel {
		t.Errorf("then it says %v", got)
	}
}

func TestStoreThatCannotBeReachedIsTriedAgain(t *testing.T) {
	sd := newSystemd()
	sd.broken = errors.New("connection refused")
	s, logs := newStore(t, sd, nil)
	source := &fakeSource{t, []string{web}, nil}
	for range 2 {
		s.Keep(source)
	}
	if logs.Len() != 1 || len(s.ledger.counts) > 0 {
		t.Errorf("the log says %v; the ledger has %v", logs.All(), s.ledger.counts)
	}
	sd.broken = nil
	s.Keep(source)
	if len(sd.has) != 3 {
		t.Errorf("the store has %v", sd.names())
	}
}

func TestStoppedSupervisorLeavesNoRecordBehindEvenIfSystemdDoesNotHear(t *testing.T) {
	sd := newSystemd()
	s, _ := newStore(t, sd, nil)
	s.Keep(&fakeSource{t, []string{web}, []string{"a"}})
	sd.room = 0
	if err := s.Empty(time.Millisecond); !errors.Is(err, systemd.ErrBusy) {
		t.Errorf("it returns %v", err)
	}
	h := newHandover()
	h.memfds = s.records()
	if h.readStored(); len(h.Problems) > 0 || h.Programs() {
		t.Errorf("the next one finds %+v (%v)", h.Record, h.Problems)
	}
	sd.room = 100
	if err := s.Empty(time.Minute); err != nil || !slices.Equal(sd.names(), []string{web}) {
		t.Errorf("%v; the store has %v", err, sd.names())
	}
}

func TestNewestWholeRecordOfTheTwoIsRead(t *testing.T) {
	s, _ := newStore(t, newSystemd(), nil)
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	read := func() *Handover {
		h := newHandover()
		h.memfds = s.records()
		h.readStored()
		return h
	}
	for n := 1; n <= 5; n++ {
		r := reloading(t)
		r.Programs[0].Core.LastWorker = 100 + n
		if err := s.write(r); err != nil {
			t.Fatal(err)
		}
		if h := read(); len(h.Problems) > 0 || h.Record.Programs[0].Core.LastWorker != 100+n || h.sequence != uint64(n) {
			t.Fatalf("after %d writes: sequence %d, %v", n, h.sequence, h.Problems)
		}
	}
	if err := rewrite(s.memfds[s.sequence%2], []byte("supervisord-record 9")); err != nil { // the supervisor died while writing
		t.Fatal(err)
	}
	if h := read(); len(h.Problems) > 0 || h.Record.Programs[0].Core.LastWorker != 104 {
		t.Errorf("with the newest cut off: %+v, %v", h.Record, h.Problems)
	}
}

func TestLedgerStopsBeforeTheNamesAreTooLong(t *testing.T) {
	inherited := "a:" + strings.Repeat("b", 253)
	l := newLedger(map[string]int{"a": 1, strings.Repeat("b", 253): 1}, 0)
	all := inherited
	name := func(i int) string { return fmt.Sprintf("%0255d", i) }
	var err error
	for i := 0; ; i++ {
		if err = l.fits(name(i)); err != nil {
			break
		}
		l.count(name(i), 1)
		all += ":" + name(i)
	}
	if size := len("LISTEN_FDNAMES="+all) + 1; !errors.Is(err, errNamesFull) || !errors.Is(err, errStoreFull) || size > 131072 || size+256 <= 131072 {
		t.Errorf("after %d bytes: %v", size, err)
	}
	l.remove(name(0))
	if err := l.fits(name(9999)); err != nil {
		t.Errorf("after one left: %v", err)
	}
	l.count(name(9999), 1)
	if err := l.fits(name(10000)); !errors.Is(err, errNamesFull) {
		t.Errorf("one more: %v", err)
	}
}

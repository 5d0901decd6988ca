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

	"github.com/cockroachdb/datadriven"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/must"
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
	messages int // that it has taken
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
	s.messages++
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

// stage is a supervisor, its store, and systemd.
type stage struct {
	*troupe
	systemd *fakeSystemd
	logs    *observer.ObservedLogs
	d       *datadriven.TestData
	t       *testing.T
}

// TestStoreStories plays the stories in testdata/store: what the supervisor has, and below each step what systemd's
// store has then. go test -run StoreStories -rewrite writes the answers anew.
func TestStoreStories(t *testing.T) {
	datadriven.Walk(t, "testdata/store", func(t *testing.T, path string) {
		s := &stage{troupe: newTroupe(), systemd: newSystemd(), t: t}
		s.begin(nil)
		t.Cleanup(func() { s.close() })
		datadriven.RunTest(t, path, s.answer)
	})
}

// begin begins with a store that inherits from the one before, if there is one.
func (s *stage) begin(h *Inheritance) {
	core, logs := observer.New(zap.InfoLevel)
	s.store, s.logs = NewStore(s.systemd, zap.New(core)), logs
	if h != nil {
		s.store.Inherit(h)
	}
}

func (s *stage) answer(t *testing.T, d *datadriven.TestData) string {
	s.t, s.d, s.systemd.messages = t, d, 0
	var out strings.Builder
	if err := s.carryOut(); err != nil {
		fmt.Fprintf(&out, "it returns: %v\n", err)
	}
	for _, name := range slices.Sorted(maps.Keys(s.systemd.has)) {
		fmt.Fprintf(&out, "%s: %d\n", name, s.systemd.has[name])
	}
	if !maps.Equal(s.systemd.has, s.store.ledger.counts) {
		fmt.Fprintf(&out, "and the ledger has %v\n", s.store.ledger.counts)
	}
	fmt.Fprintf(&out, "messages: %d", s.systemd.messages)
	if s.store.Busy() {
		out.WriteString(", more when systemd has room")
	}
	for _, entry := range s.logs.TakeAll() {
		said, _, _ := strings.Cut(entry.Message, ";")
		fmt.Fprintf(&out, "\nlog: %s: %s", entry.Level, said)
		for _, f := range entry.Context {
			fmt.Fprintf(&out, "\n  %s: %v", f.Key, entry.ContextMap()[f.Key])
		}
	}
	return out.String() + "\n"
}

func (s *stage) carryOut() error {
	sd := s.systemd
	switch s.d.Cmd {
	case "stored": // by the supervisord before, in the life of another process
		for _, a := range s.d.CmdArgs {
			sd.has[a.Key] = s.number(a.Key)
		}
	case "room": // for so many messages
		sd.room = s.number("for")
	case "unreachable":
		sd.broken = errors.New("connection refused")
	case "reachable":
		sd.broken = nil
	case "limit": // FileDescriptorStoreMax=
		s.store.ledger.limit = s.number("is")
	case "keep":
		s.cast()
		s.store.Keep(s, []string{"web", "a", "b"})
	case "reads": // so many messages
		sd.room += s.number("messages")
		sd.writable <- struct{}{}
		if s.d.HasArg("settle") {
			return s.store.Settle(time.Minute)
		}
		<-s.store.Writable()
		s.store.Push()
	case "settle":
		return s.store.Settle(time.Millisecond)
	case "empty":
		return s.store.Empty(time.Millisecond)
	case "next": // supervisord, after a death, or by execve with what the one before knows
		s.next()
	default:
		s.d.Fatalf(s.t, "unknown command %s", s.d.Cmd)
	}
	return nil
}

func (s *stage) next() {
	h := newInheritance()
	h.stored = maps.Clone(s.systemd.has)
	s.d.MaybeScanArgs(s.t, "limit", &h.limit)
	if s.d.HasArg("by-execve") {
		h.stored, h.memfds = s.store.ledger.counts, s.store.written.files()
		h.Record = h.readNewest()
	} else {
		s.close()
	}
	s.begin(h)
}

// cast gives the supervisor the sockets, the workers, by their programs and in the order of their numbers, and the
// filters of ended workers that the command names. A worker that is bare has no descriptors yet.
func (s *stage) cast() {
	s.programs, s.sockets, s.filters = map[string]*actor{}, nil, map[string]Adoptable{}
	for _, name := range s.words("sockets") {
		s.sockets = append(s.sockets, socket.Named{Name: name, FD: int(os.Stdin.Fd())})
	}
	for _, name := range s.words("filters") {
		s.filters[name] = process{kinds: []string{worker.FDBind}}
	}
	for i, name := range s.words("workers") {
		name, bare := strings.CutPrefix(name, "bare-")
		a := s.programs[name]
		switch {
		case name == "none":
			continue
		case a == nil:
			a = newActor(&config.Program{Name: name})
			a.Core.Draining = []*program.Generation{{Number: 1, Config: a.Core.Config}}
			a.Generations[1], s.programs[name] = GenerationRecord{}, a
		}
		p := process{pid: 4711}
		if !bare {
			p.kinds = []string{worker.FDProcess, worker.FDNotify}
		}
		g := a.Core.Draining[0]
		g.Workers = append(g.Workers,
			&program.Worker{Standing: program.Standing{Number: i + 1, State: program.Stopping}})
		a.processes[i+1] = p
	}
}

func (s *stage) words(key string) []string {
	a, _ := s.d.Arg(key)
	return a.Vals
}

func (s *stage) number(key string) (n int) {
	s.d.ScanArgs(s.t, key, &n)
	return n
}

func TestStoppedSupervisorLeavesNoRecordBehindEvenIfSystemdDoesNotHear(t *testing.T) {
	s, h := served(t), newInheritance()
	for name, fd := range s.store.written.files() { // as systemd has them
		kept := must.Get(duplicate(fd))(t)
		defer unix.Close(kept)
		h.memfds[name] = kept
	}
	if h.readNewest() == nil {
		t.Fatal("there was no record")
	}
	s.store.to.(*fakeSystemd).room = 0
	if err := s.store.Empty(time.Millisecond); !errors.Is(err, systemd.ErrBusy) {
		t.Errorf("it returns %v", err)
	}
	if h.Record = h.readNewest(); len(h.Problems) > 0 || h.Programs() {
		t.Errorf("the next one finds %+v (%v)", h.Record, h.Problems)
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

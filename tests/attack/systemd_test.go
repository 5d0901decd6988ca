package attack

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// fakeSystemd is systemd as a service sees it: a notification socket, and a file-descriptor store that outlives the
// service. A test can pause its reading, like a busy systemd. The store is closed at the end of the test.
type fakeSystemd struct {
	Max   int      // FileDescriptorStoreMax=: descriptors beyond it are dropped, as systemd does; 0: not set
	Units []string // names of descriptors that socket units add to each start

	// Look, if set, is called with each descriptor to be stored. It must not close the descriptor.
	Look func(name string, fd int)

	t    testing.TB
	path string
	conn *net.UnixConn
	base *launch // of the supervisord that it serves; nil: none yet

	turn sync.Mutex // held while a message is handled; Pause holds it

	mu    sync.Mutex
	store map[string][]int
	said  []string      // messages, without those about the store and watchdog pings
	size  int           // the longest LISTEN_FDNAMES of the store so far
	pings int           // of the watchdog
	lost  int           // descriptors that were dropped
	more  chan struct{} // closed at the next message
}

// launch is how a supervisord is started without systemd.
type launch struct{ env, via []string }

// newSystemd returns a systemd that reads at once.
func newSystemd(t testing.TB) *fakeSystemd {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd")
	lab.Must(t, err)
	s := &fakeSystemd{t: t, path: filepath.Join(dir, "notify"), store: map[string][]int{}, more: make(chan struct{})}
	s.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path, Net: "unixgram"})
	lab.Must(t, err)
	done := make(chan struct{})
	go func() { defer close(done); s.read() }()
	t.Cleanup(func() {
		s.conn.Close()
		<-done
		for _, fds := range s.store {
			closeAll(fds)
		}
		os.RemoveAll(dir)
	})
	return s
}

// Launches makes the next start of m a start by systemd: with the notification socket and everything in the store.
func (s *fakeSystemd) Launches(m *lab.Supervisord) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == nil {
		s.base = &launch{slices.Clone(m.Env), slices.Clone(m.Via)}
	}
	m.Env, m.Files = append(slices.Clone(s.base.env), "NOTIFY_SOCKET="+s.path), nil
	m.Via = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}, s.base.via...)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.store)) {
		for _, fd := range s.store[name] {
			own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			lab.Must(s.t, err)
			m.Files = append(m.Files, os.NewFile(uintptr(own), name))
			names = append(names, name)
		}
	}
	for _, name := range s.Units {
		f, err := os.Open(os.DevNull)
		lab.Must(s.t, err)
		m.Files = append(m.Files, f)
		names = append(names, name)
	}
	if s.Max > 0 {
		m.Env = append(m.Env, fmt.Sprintf("FDSTORE=%d", s.Max))
	}
	if len(names) > 0 {
		m.Env = append(m.Env, fmt.Sprintf("LISTEN_FDS=%d", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
}

// Pause stops the reading, until Resume.
func (s *fakeSystemd) Pause() { s.turn.Lock() }

// Resume undoes Pause.
func (s *fakeSystemd) Resume() { s.turn.Unlock() }

// Stored lists the names in the store.
func (s *fakeSystemd) Stored() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.store))
}

// FD returns the descriptor that the store has under a name, or -1. The store keeps owning it.
func (s *fakeSystemd) FD(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fds := s.store[name]; len(fds) > 0 {
		return fds[0]
	}
	return -1
}

// Names returns the largest size so far, in bytes, of LISTEN_FDNAMES for a next start.
func (s *fakeSystemd) Names() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Lost returns the number of descriptors dropped because the store had Max.
func (s *fakeSystemd) Lost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// kinds are the kinds of a worker's descriptors by their marks (fcntl(F_GETSIG)): the descriptors of a worker share a
// name.
var kinds = []string{"", "pidfd", "notify", "notify-pipe", "report", "stdout", "stderr"}

// label is the name of a stored descriptor, a worker's with its kind.
func label(name string, fd int) string {
	if !strings.HasPrefix(name, "w.") {
		return name
	}
	mark, err := unix.FcntlInt(uintptr(fd), unix.F_GETSIG, 0)
	if err != nil || mark < 1 || mark >= len(kinds) {
		return name + ".?"
	}
	return name + "." + kinds[mark]
}

// AwaitStored waits until the store has n descriptors whose labels have this suffix.
func (s *fakeSystemd) AwaitStored(suffix string, count int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d descriptors *%s in the store", count, suffix), func() bool {
		n := 0
		for name, fds := range s.store {
			for _, fd := range fds {
				if strings.HasSuffix(label(name, fd), suffix) {
					n++
				}
			}
		}
		return n == count
	})
}

func (s *fakeSystemd) await(what string, holds func() bool) {
	s.t.Helper()
	timeout := time.NewTimer(lab.Patience)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		met, more := holds(), s.more
		s.mu.Unlock()
		if met {
			return
		}
		select {
		case <-more:
		case <-timeout.C:
			s.t.Fatalf("systemd still waits for %s; its store has %v", what, s.Stored())
		}
	}
}

// maxRights is the maximum of descriptors in one message: the kernel's SCM_MAX_FD.
const maxRights = 253

func (s *fakeSystemd) read() {
	data, rights := make([]byte, 8192), make([]byte, unix.CmsgSpace(4*maxRights))
	for {
		s.turn.Lock()
		//lint:ignore SA2001 it only waits for Resume
		s.turn.Unlock()
		n, rn, _, _, err := s.conn.ReadMsgUnix(data, rights)
		if err != nil {
			return
		}
		s.turn.Lock()
		s.handle(string(data[:n]), received(rights[:rn]))
		s.turn.Unlock()
	}
}

func received(rights []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(rights)
	for i := range messages {
		if some, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, some...)
		}
	}
	if err != nil {
		return nil
	}
	return fds
}

func (s *fakeSystemd) handle(text string, fds []int) {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		values[key] = value
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case values["FDSTORE"] == "1":
		for _, fd := range fds {
			if s.Look != nil {
				s.Look(values["FDNAME"], fd)
			}
			s.keep(values["FDNAME"], fd)
		}
		s.size = max(s.size, s.listed())
	case values["FDSTOREREMOVE"] == "1":
		closeAll(s.store[values["FDNAME"]])
		delete(s.store, values["FDNAME"])
	default:
		closeAll(fds) // this also answers BARRIER=1
		if values["WATCHDOG"] == "1" {
			s.pings++
		} else {
			s.said = append(s.said, text)
		}
	}
	close(s.more)
	s.more = make(chan struct{})
}

// Pings returns the number of watchdog messages so far.
func (s *fakeSystemd) Pings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pings
}

// keep stores a descriptor unless the store already has the same file under any name (kcmp(2)).
func (s *fakeSystemd) keep(name string, fd int) {
	for _, fds := range s.store {
		for _, other := range fds {
			if same(fd, other) {
				unix.Close(fd)
				return
			}
		}
	}
	if s.Max > 0 && s.count() >= s.Max {
		s.lost++
		unix.Close(fd)
		return
	}
	s.store[name] = append(s.store[name], fd)
}

func (s *fakeSystemd) count() int {
	n := 0
	for _, fds := range s.store {
		n += len(fds)
	}
	return n
}

func same(a, b int) bool {
	const kcmpFile = 0
	self := uintptr(os.Getpid())
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, self, self, kcmpFile, uintptr(a), uintptr(b), 0)
	return errno == 0 && order == 0
}

// listed returns the current size of LISTEN_FDNAMES, including the name of the variable and the NUL.
func (s *fakeSystemd) listed() int {
	size := len("LISTEN_FDNAMES=")
	for name, fds := range s.store {
		size += len(fds) * (len(name) + 1)
	}
	for _, name := range s.Units {
		size += len(name) + 1
	}
	return size
}

func closeAll(fds []int) {
	var errs []error
	for _, fd := range fds {
		errs = append(errs, unix.Close(fd))
	}
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
}

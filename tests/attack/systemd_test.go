package attack

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// fakeSystemd is systemd as a service sees it: a notification socket, and a file-descriptor store that outlives the
// service and is closed at the end of the test. While a test holds its lock, it is busy: it takes no message.
type fakeSystemd struct {
	m    *lab.Supervisord // the service
	conn *net.UnixConn

	sync.Mutex
	store map[string][]int // by name
}

// underSystemd starts a supervisord as systemd does, which serves when it returns.
func underSystemd(t *testing.T, config string) (*fakeSystemd, *lab.Supervisord) {
	t.Helper()
	m := lab.Prepare(t)
	s := openSystemd(m)
	m.Write(config)
	s.Start()
	m.Serves(1)
	return s, m
}

// openSystemd opens a systemd for this service. The path of its socket is not a file that supervisord might leave.
func openSystemd(m *lab.Supervisord) *fakeSystemd {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "@" + m.Dir, Net: "unixgram"})
	lab.Must(m.T, err)
	s := &fakeSystemd{m: m, conn: conn, store: map[string][]int{}}
	done := make(chan struct{})
	go func() { defer close(done); s.read() }()
	m.T.Cleanup(func() {
		conn.Close()
		<-done
		for _, fds := range s.store {
			closeAll(fds)
		}
	})
	return s
}

// Start starts the service with the notification socket and all that the store has.
func (s *fakeSystemd) Start() {
	s.m.T.Helper()
	s.Lock()
	defer s.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.store)) {
		for _, fd := range s.store[name] {
			own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			lab.Must(s.m.T, err)
			s.m.Files, names = append(s.m.Files, os.NewFile(uintptr(own), name)), append(names, name)
		}
	}
	s.m.Env, s.m.Via = []string{"NOTIFY_SOCKET=@" + s.m.Dir}, []string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}
	if len(names) > 0 {
		s.m.Env = append(s.m.Env, fmt.Sprint("LISTEN_FDS=", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
	s.m.Launch("-c", s.m.Path("config.toml"))
}

// Stored waits until the store has so many descriptors whose name ends so, and returns one; the store keeps owning it.
// The descriptors of a worker share a name, to which this adds their mark (fcntl(F_GETSIG)): ".1" is a pidfd, ".5"
// stdout.
func (s *fakeSystemd) Stored(suffix string, count int) (stored int) {
	s.m.T.Helper()
	s.m.Until(fmt.Sprintf("the store has %d descriptors *%s", count, suffix), func() bool {
		s.Lock()
		defer s.Unlock()
		n := 0
		for name, fds := range s.store {
			for _, fd := range fds {
				label := name
				if strings.HasPrefix(name, "w.") {
					mark, _ := unix.FcntlInt(uintptr(fd), unix.F_GETSIG, 0)
					label = fmt.Sprint(name, ".", mark)
				}
				if strings.HasSuffix(label, suffix) {
					n, stored = n+1, fd
				}
			}
		}
		return n == count
	})
	return stored
}

// maxRights is the maximum of descriptors in one message: the kernel's SCM_MAX_FD.
const maxRights = 253

func (s *fakeSystemd) read() {
	data, rights := make([]byte, 8192), make([]byte, unix.CmsgSpace(4*maxRights))
	for {
		n, rn, _, _, err := s.conn.ReadMsgUnix(data, rights)
		if err != nil {
			return
		}
		var fds []int
		messages, _ := unix.ParseSocketControlMessage(rights[:rn])
		for i := range messages {
			some, _ := unix.ParseUnixRights(&messages[i])
			fds = append(fds, some...)
		}
		s.handle(strings.Split(string(data[:n]), "\n"), fds)
	}
}

func (s *fakeSystemd) handle(lines []string, fds []int) {
	s.Lock()
	defer s.Unlock()
	name := ""
	for _, line := range lines {
		if is, found := strings.CutPrefix(line, "FDNAME="); found {
			name = is
		}
	}
	switch {
	case slices.Contains(lines, "FDSTORE=1"):
		for _, fd := range fds {
			if slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(s.store))...), same(fd)) {
				unix.Close(fd)
			} else {
				s.store[name] = append(s.store[name], fd)
			}
		}
	case slices.Contains(lines, "FDSTOREREMOVE=1"):
		closeAll(s.store[name])
		delete(s.store, name)
	default:
		closeAll(fds) // this also answers BARRIER=1
	}
}

// same reports whether a descriptor is of the same open file: systemd stores none twice.
func same(a int) func(b int) bool {
	const kcmpFile = 0
	self := uintptr(os.Getpid())
	return func(b int) bool {
		order, _, errno := unix.Syscall6(unix.SYS_KCMP, self, self, kcmpFile, uintptr(a), uintptr(b), 0)
		return errno == 0 && order == 0
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if err := unix.Close(fd); err != nil {
			panic(err)
		}
	}
}

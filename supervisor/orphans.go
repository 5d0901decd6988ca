package supervisor

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/inherit"
	"example.org/supervisord/supervisor/program"
)

// Orphans are worker processes whose supervisor died and left nothing that could be restored: no file-descriptor store, or a
// worker that was spawned in the instant of the death. They still serve, on sockets that a new supervisor could not bind. Each
// goes on until the programs that have taken over its sockets serve, and the program whose worker it was.
type Orphans struct {
	OrphanSearch
	processes []*orphan
	looks     foreign.Looks
}

// OrphanSearch says whose orphans a supervisor looks for.
type OrphanSearch struct {
	RuntimeDir string
	Config     string // the path of the configuration, as in the workers' configVariable
	Users      []int  // that workers run as, beside the supervisor's own
	Log        *zap.Logger
}

// configVariable names the configuration in the environment of every worker; without one it is not set. Supervisors with the
// same runtime directory know their workers by it.
const configVariable = "SUPERVISORD_CONFIG"

// orphan is one process.
type orphan struct {
	pid     int
	pidfd   *os.File // in no danger of being somebody else's process
	program string   // whose worker it was
	sockets []uint64 // the inodes of the listening sockets that it has
	waits   []string // the programs that it serves for; empty: it can go
	asked   bool     // the supervisor before this one has told it to go
	now     atomic.Bool
}

// openOrphan returns nil if there is no such process.
func openOrphan(pid int) *orphan {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	return newOrphan(pid, fd)
}

func newOrphan(pid, pidfd int) *orphan {
	unix.SetNonblock(pidfd, true) //nolint:errcheck // so that os.NewFile gives it to the poller
	return &orphan{pid: pid, pidfd: os.NewFile(uintptr(pidfd), "process "+strconv.Itoa(pid))}
}

// FindOrphans finds the processes that were workers of a supervisor that is gone. A worker is known by its environment: by a
// NOTIFY_SOCKET in our runtime directory where nobody listens any more, and by our configuration. Every user can set these
// variables, so only a process that nobody else could have started is looked at: see trusted.
func FindOrphans(s OrphanSearch) *Orphans {
	orphans := &Orphans{OrphanSearch: s}
	for _, pid := range proc.PIDs() {
		if pid != os.Getpid() {
			orphans.look(pid)
		}
	}
	return orphans
}

func (s *Orphans) look(pid int) {
	o := openOrphan(pid) // first, so that what is read below is about this process
	if o == nil {
		return
	}
	env := s.environOf(pid)
	path := env["NOTIFY_SOCKET"]
	if !strings.HasPrefix(path, filepath.Join(s.RuntimeDir, "notify.")) || env[configVariable] != s.Config ||
		!s.trusted(pid, path) || !sameNamespace(pid) || listened(path) {
		o.pidfd.Close()
		return
	}
	o.program = env["SUPERVISORD_PROGRAM"]
	s.processes = append(s.processes, o)
}

// environOf is the environment that a process was executed with; nothing, where it must not be read, or the process keeps it from being
// read.
func (s *Orphans) environOf(pid int) map[string]string {
	text, _ := s.looks.ReadFile(proc.Path(pid, "environ"))
	return proc.ParseEnviron(text)
}

// trusted reports whether a process runs entirely as a user that workers run as: ourselves, a configured user, or the one whom
// the notify socket was given to, in a directory that only we can write to. A setuid program still has the user who started it.
func (s *Orphans) trusted(pid int, path string) bool {
	uid, one := userOf(pid)
	if !one {
		return false
	}
	if uid == os.Geteuid() || slices.Contains(s.Users, uid) {
		return true
	}
	var dir, socket unix.Stat_t
	return unix.Lstat(filepath.Dir(path), &dir) == nil && int(dir.Uid) == os.Geteuid() && dir.Mode&0o022 == 0 &&
		unix.Lstat(path, &socket) == nil && socket.Mode&unix.S_IFMT == unix.S_IFSOCK && int(socket.Uid) == uid
}

// userOf returns the user of a process, if its real, effective, saved and file-system user are one.
func userOf(pid int) (uid int, one bool) {
	status, _ := proc.Status(pid)
	words := strings.Fields(status["Uid"])
	if len(words) != 4 || slices.ContainsFunc(words, func(w string) bool { return w != words[0] }) {
		return 0, false
	}
	uid, err := strconv.Atoi(words[0])
	return uid, err == nil
}

// WorkerUsers lists the users that the workers of a configuration, or of what was handed over, run as. Whom the user database
// does not know is left out.
func WorkerUsers(c *config.Config, h *Handover) []int {
	var users []int
	if c != nil {
		for _, p := range c.Programs {
			if p.User == "" {
				continue
			}
			if uid, err := proc.UID(p.User); err == nil {
				users = append(users, int(uid))
			}
		}
	}
	if h == nil || h.record == nil {
		return users
	}
	for _, p := range h.record.Programs {
		for _, g := range p.Generations {
			if g.Snapshot != nil && g.Snapshot.Credential != nil {
				users = append(users, int(g.Snapshot.Credential.UID))
			}
		}
	}
	return users
}

// sameNamespace reports whether a process is in our PID namespace. One in a container has a supervisor, and paths, of its own.
func sameNamespace(pid int) bool {
	theirs, err := os.Readlink(proc.Path(pid, "ns/pid"))
	if err != nil {
		return false
	}
	ours, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && ours == theirs
}

// listened reports whether somebody holds the receiving end of a datagram socket.
func listened(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	return err != unix.ECONNREFUSED && err != unix.ENOENT
}

// Take adds the processes that were handed over and that the record does not know. The store that has their notify sockets
// makes them look as if somebody listened there.
func (s *Orphans) Take(h *Handover) {
	for _, pidfd := range h.unknown() {
		pid, err := proc.PIDOf(pidfd)
		if err != nil || pid <= 0 || slices.ContainsFunc(s.processes, func(o *orphan) bool { return o.pid == pid }) {
			unix.Close(pidfd)
			continue
		}
		o := newOrphan(pid, pidfd)
		o.program = s.environOf(pid)["SUPERVISORD_PROGRAM"]
		s.processes = append(s.processes, o)
	}
	for _, o := range s.processes {
		o.asked = h.record != nil && slices.Contains(h.record.Orphans, o.pid)
	}
}

// Sockets takes the listening sockets out of the processes (pidfd_getfd(2)), so that no client is refused between them and the
// workers to come. It needs the right to trace them, as root or the same user has; without it there are none. A socket that
// another user has opened stays where it is: that user may have kept a duplicate, and could accept our clients' connections.
func (s *Orphans) Sockets() []inherit.Socket {
	var found []inherit.Socket
	taken := map[string]bool{}
	for _, o := range s.processes {
		links, _ := proc.Descriptors(o.pid)
		for _, number := range slices.Sorted(maps.Keys(links)) {
			link := links[number]
			node, isSocket := proc.SocketInode(link)
			if !isSocket {
				continue
			}
			o.sockets = append(o.sockets, node)
			if taken[link] {
				continue
			}
			taken[link] = true
			if i, ok := o.socket(number); ok {
				found = append(found, i)
			}
		}
	}
	return found
}

func (o *orphan) socket(number int) (inherit.Socket, bool) {
	fd, err := -1, error(nil)
	o.use(func(pidfd int) { fd, err = unix.PidfdGetfd(pidfd, number, 0) })
	if err != nil || fd < 0 {
		return inherit.Socket{}, false
	}
	var st unix.Stat_t // of the socket's inode, which belongs to whoever made it
	i, err := inherit.Examine(fd, "orphan")
	if err != nil || !i.Listens || i.Network == "unixgram" || unix.Fstat(fd, &st) != nil || int(st.Uid) != os.Geteuid() {
		unix.Close(fd)
		return inherit.Socket{}, false
	}
	i.Ours, i.InUse = true, true
	return i, true
}

// use calls f with the pidfd, unless it is closed.
func (o *orphan) use(f func(pidfd int)) {
	if conn, err := o.pidfd.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { f(int(fd)) }) //nolint:errcheck // closed: then it has ended
	}
}

// claimOrphans finds out what each orphan waits for. It is called when the table has taken the sockets.
func (s *Supervisor) claimOrphans() {
	if s.Orphans == nil {
		return
	}
	owners := map[uint64]map[string]bool{}
	for name, p := range s.programs {
		for _, l := range p.listeners {
			for slot := range p.core.Config.Workers {
				if fd := s.table.FD(l.Key(), slot); fd >= 0 {
					node := inode(fd)
					if owners[node] == nil {
						owners[node] = map[string]bool{}
					}
					owners[node][name] = true
				}
			}
		}
	}
	serving := map[string]int{}
	for _, o := range s.Orphans.processes {
		programs := map[string]bool{}
		if s.programs[o.program] != nil {
			programs[o.program] = true
		}
		for _, node := range o.sockets {
			maps.Copy(programs, owners[node])
		}
		o.waits = slices.Sorted(maps.Keys(programs))
		for _, name := range o.waits {
			serving[name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(serving)) {
		s.Log.Warn("workers of a supervisord that died go on until the program serves", zap.String("program", name), zap.Int("processes", serving[name]))
	}
}

// releaseOrphans tells those to go that nobody needs any more.
func (s *Supervisor) releaseOrphans() {
	if s.Orphans == nil {
		return
	}
	s.Orphans.processes = slices.DeleteFunc(s.Orphans.processes, func(o *orphan) bool {
		if len(o.waits) > 0 {
			o.waits = slices.DeleteFunc(o.waits, s.needsNoOrphan)
		}
		if len(o.waits) == 0 {
			s.endOrphan(o)
		}
		return len(o.waits) == 0
	})
}

// needsNoOrphan reports whether a program serves, or nobody wants it to.
func (s *Supervisor) needsNoOrphan(name string) bool {
	p := s.programs[name]
	if p == nil || p.removed || s.stopping {
		return true
	}
	switch p.core.State() {
	case program.StartingUp, program.Waiting:
		return false
	case program.Up, program.Reloading, program.Down, program.ShuttingOff:
	}
	return true
}

// endOrphan carries out the stop plan of the program whose worker it was, which has the last word on signals; the plan that
// the process was started with died with its supervisor.
func (s *Supervisor) endOrphan(o *orphan) {
	steps := []config.StopStep{{Signal: syscall.SIGTERM, Wait: orphanTimeout}}
	if p := s.programs[o.program]; p != nil && len(p.core.Config.Stop.Steps) > 0 {
		steps = p.core.Config.Stop.Steps
	}
	if !o.asked {
		s.Log.Warn("a worker of a supervisord that died is told to stop", zap.Int("pid", o.pid), zap.String("program", o.program))
	}
	s.ending = append(s.ending, o)
	s.running.Go(func() {
		o.end(steps)
		s.put(orphanNote{o})
	})
}

// orphanNote says that an orphan has ended.
type orphanNote struct{ *orphan }

func (orphanNote) note() {}

func (s *Supervisor) orphanEnded(n orphanNote) {
	s.ending = slices.DeleteFunc(s.ending, func(o *orphan) bool { return o == n.orphan })
}

// killOrphans ends every orphan now.
func (s *Supervisor) killOrphans() {
	s.releaseOrphans()
	for _, o := range s.ending {
		o.now.Store(true)
		o.pidfd.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // closed: it has ended
	}
}

// orphanTimeout is how long an orphan may drain where no program says so.
const orphanTimeout = 30 * time.Second

// end sends the signals of a stop plan until the process has ended, and KILL after the last step or when there is no more time.
func (o *orphan) end(steps []config.StopStep) {
	defer o.pidfd.Close()
	for i, step := range steps {
		if i > 0 || !o.asked { // a second TERM means now to many programs
			o.signal(step.Signal)
		}
		var deadline time.Time
		if step.Wait != config.Forever {
			deadline = time.Now().Add(step.Wait)
		}
		o.pidfd.SetReadDeadline(deadline) //nolint:errcheck // a pidfd is in the poller
		if o.now.Load() {
			break
		}
		if o.ended() {
			return
		}
	}
	o.signal(syscall.SIGKILL)
	o.pidfd.SetReadDeadline(time.Now().Add(time.Second)) //nolint:errcheck // likewise
	o.ended()
}

func (o *orphan) signal(sig syscall.Signal) {
	o.use(func(pidfd int) { unix.PidfdSendSignal(pidfd, sig, nil, 0) }) //nolint:errcheck // it may have ended
}

// ended waits until the process has ended, or for the deadline.
func (o *orphan) ended() bool {
	conn, err := o.pidfd.SyscallConn()
	if err != nil {
		return true
	}
	return conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	}) == nil
}

// orphansOf lists the processes that serve for a program which does not serve yet.
func (s *Supervisor) orphansOf(program string) []int {
	var pids []int
	if s.Orphans != nil {
		for _, o := range s.Orphans.processes {
			if slices.Contains(o.waits, program) {
				pids = append(pids, o.pid)
			}
		}
	}
	return pids
}

// ErrLeft is returned by Run when the supervisor was told to leave its workers to the next one. The process must end then:
// nothing is read or reaped any more.
var ErrLeft = errors.New("the workers are left to the next supervisord")

// EndGroup kills whatever else lives in the control group of this process, if it is the main process of a systemd service:
// after the programs have stopped, that is what left its worker's process group, and whose worker was adopted, so that it did
// not become a child of this process. Elsewhere the group is not ours, and it does nothing.
func EndGroup(getenv func(string) string, log *zap.Logger) {
	if getenv("SYSTEMD_EXEC_PID") != strconv.Itoa(os.Getpid()) {
		return
	}
	for range 10 { // they may fork
		members := group()
		if len(members) == 0 {
			return
		}
		for _, p := range members {
			log.Warn("a process that is left in the control group is killed", zap.Int("pid", p.pid))
			p.end(nil)
		}
	}
}

// group lists the other processes in the control group of this one (cgroups(7)).
func group() []*orphan {
	var members []*orphan
	for _, dir := range proc.OwnGroups() {
		for _, pid := range proc.GroupMembers(dir) {
			if pid <= 0 || pid == os.Getpid() {
				continue
			}
			if o := openOrphan(pid); o != nil {
				members = append(members, o)
			}
		}
	}
	return members
}

// Offer adds sockets to what was handed over.
func (h *Handover) Offer(sockets []inherit.Socket) { h.sockets = append(h.sockets, sockets...) }

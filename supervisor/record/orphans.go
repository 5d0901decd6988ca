package record

import (
	"cmp"
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
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/spawn"
)

// ConfigVariable names the configuration in the environment of every worker; without one it is not set. Supervisors
// with the same runtime directory know their workers by it.
const ConfigVariable = "SUPERVISORD_CONFIG"

// OrphanSearch says whose orphans a supervisor looks for.
type OrphanSearch struct {
	RuntimeDir string
	Config     string         // the path of the configuration, as in the workers' ConfigVariable
	Programs   *config.Config // whose users workers run as, besides the supervisor's own; may be nil
	Log        *zap.Logger
}

// Orphans are worker processes whose supervisor died and left nothing that could be restored: there was no
// file-descriptor store, or they were spawned in the instant of the death. They still serve, on sockets that a new
// supervisor could not bind. Each continues until the programs that have taken over its sockets serve, and the program
// whose worker it was. The zero value has none.
type Orphans struct {
	search  OrphanSearch
	users   []int
	serving []*Orphan
	ending  []*Orphan
	looks   foreign.Looks
}

// FindOrphans finds the processes that were workers of a supervisor that is gone, and adds duplicates of their
// listening sockets (pidfd_getfd(2), Linux 5.6) to h. A worker is known by its environment: by a NOTIFY_SOCKET in our
// runtime directory where no process listens any more, and by our configuration. Every user can set these variables, so
// only a process that no other user could have started counts: see trusted. No order among the orphans has to be found
// out: the socket table makes one lane of all that they have, which gets new connections until a new generation serves.
func FindOrphans(s OrphanSearch, h *Inheritance) *Orphans {
	orphans := &Orphans{search: s, users: workerUsers(s.Programs, h)}
	for _, pid := range proc.PIDs() {
		if pid != os.Getpid() {
			orphans.look(pid)
		}
	}
	orphans.gather()
	orphans.take(h)
	h.Sockets = append(h.Sockets, orphans.sockets()...)
	return orphans
}

// look takes a process for an orphan if a supervisor that is dead has started it.
func (s *Orphans) look(pid int) {
	o := openOrphan(pid) // first, so that what is read below is about this process
	if o == nil {
		return
	}
	env := s.environOf(pid)
	path := env["NOTIFY_SOCKET"]
	if !strings.HasPrefix(path, filepath.Join(s.search.RuntimeDir, "notify.")) || env[ConfigVariable] != s.search.Config ||
		!s.trusted(pid, path) || !sameNamespace(pid) || listened(path) {
		o.pidfd.Close()
		return
	}
	stat, err := proc.ReadStat(pid)
	if err != nil || stat.Dead() {
		o.pidfd.Close()
		return
	}
	o.uid = ownerOf(pid)
	o.Program, o.path, o.began = env["SUPERVISORD_PROGRAM"], path, stat.Began
	o.leads = stat.Session == pid && stat.Group == pid
	s.serving = append(s.serving, o)
}

// gather makes one orphan of the processes of each worker. The worker is the one that leads a session, as every worker
// does; of several the oldest: a child that leads another session has begun later. The others have what the worker has
// given them, and get no signal from a supervisor.
func (s *Orphans) gather() {
	slices.SortFunc(s.serving, func(a, b *Orphan) int {
		switch {
		case a.leads != b.leads && a.leads:
			return -1
		case a.leads != b.leads:
			return 1
		}
		return cmp.Or(cmp.Compare(a.began, b.began), cmp.Compare(a.pid, b.pid))
	})
	workers := map[string]*Orphan{}
	s.serving = slices.DeleteFunc(s.serving, func(o *Orphan) bool {
		first := workers[o.path]
		if first == nil {
			workers[o.path] = o
			return false
		}
		first.rest = append(first.rest, o)
		return true
	})
}

// environOf returns the environment that a process was executed with, or nothing where it must not be read, or where
// the process keeps it from being read.
func (s *Orphans) environOf(pid int) map[string]string {
	environ, _ := proc.BoundedEnviron(&s.looks, pid)
	return environ
}

// trusted reports whether a process runs entirely as a user that workers run as: ourselves, a configured user, or the
// one whom the notify socket was given to, in a directory that only we can write to. A setuid program still has the
// user who started it.
func (s *Orphans) trusted(pid int, path string) bool {
	uid, one := userOf(pid)
	if !one {
		return false
	}
	if uid == os.Geteuid() || slices.Contains(s.users, uid) {
		return true
	}
	var dir, socket unix.Stat_t
	return unix.Lstat(filepath.Dir(path), &dir) == nil && int(dir.Uid) == os.Geteuid() && dir.Mode&0o022 == 0 &&
		unix.Lstat(path, &socket) == nil && socket.Mode&unix.S_IFMT == unix.S_IFSOCK && int(socket.Uid) == uid
}

// ownerOf returns the user of a process that userOf trusts; ours, if it has ended.
func ownerOf(pid int) int {
	if uid, one := userOf(pid); one {
		return uid
	}
	return os.Geteuid()
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

// workerUsers lists the users that the workers of a configuration, or of what was handed over, run as. Users that the
// user database does not know are left out.
func workerUsers(c *config.Config, h *Inheritance) []int {
	var users []int
	if c != nil {
		for _, p := range c.Programs {
			if p.User == "" { // do not ask: the user database would load a megabyte of libraries
				continue
			}
			if uid, err := proc.UID(p.User); err == nil {
				users = append(users, int(uid))
			}
		}
	}
	if h.Record == nil {
		return users
	}
	for _, p := range h.Record.Programs {
		for _, g := range p.Generations {
			if g.Snapshot != nil && g.Snapshot.Credential != nil {
				users = append(users, int(g.Snapshot.Credential.UID))
			}
		}
	}
	return users
}

// sameNamespace reports whether a process is in our PID namespace. One in a container has a supervisor, and paths, of
// its own.
func sameNamespace(pid int) bool {
	theirs, err := proc.Readlink(pid, "ns/pid")
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
	to := &unix.SockaddrUnix{Name: path}
	if err = unix.Connect(fd, to); err != nil && err != unix.ECONNREFUSED && err != unix.ENOENT {
		err = unix.Connect(fd, to) // a kernel that lacked memory for a moment must not make an orphan somebody's worker
	}
	return err != unix.ECONNREFUSED && err != unix.ENOENT
}

// take adds the processes that were handed over and that the record does not know. The store that has their notify
// sockets makes them look as if somebody listened there.
func (s *Orphans) take(h *Inheritance) {
	for _, pidfd := range h.unknown() {
		pid, err := proc.PIDOf(pidfd)
		if err != nil || pid <= 0 || slices.ContainsFunc(s.serving, func(o *Orphan) bool { return o.pid == pid }) {
			unix.Close(pidfd)
			continue
		}
		o := newOrphan(pid, pidfd)
		o.leads, o.uid = true, ownerOf(pid)
		o.Program = s.environOf(pid)["SUPERVISORD_PROGRAM"]
		s.serving = append(s.serving, o)
	}
	for _, o := range s.serving {
		o.asked = h.Record != nil && slices.Contains(h.Record.Orphans, o.pid)
	}
}

// sockets takes the listening sockets out of the processes (pidfd_getfd(2)), so that no client is refused between them
// and the workers to come. That needs permission to trace them, which root and the same user have; without it the
// result is empty. A socket that another user has opened stays where it is: that user may have kept a duplicate, and
// could accept our clients' connections.
func (s *Orphans) sockets() []inherit.Socket {
	var found []inherit.Socket
	taken := map[string]bool{}
	for _, o := range s.serving {
		for _, p := range append([]*Orphan{o}, o.rest...) {
			links, err := proc.Descriptors(p.pid)
			if err != nil {
				s.search.Log.Warn("cannot see the sockets of an orphaned worker", zap.Int("pid", p.pid), zap.Error(err))
			}
			if p == o {
				o.takeStreams(links)
			}
			found = append(found, s.socketsOf(o, p, links, taken)...)
		}
	}
	return found
}

// socketsOf takes the listening sockets that are not taken yet out of a process of an orphan.
func (s *Orphans) socketsOf(o, p *Orphan, links map[int]string, taken map[string]bool) (found []inherit.Socket) {
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
		i, ok, err := p.socket(number)
		if err != nil {
			s.search.Log.Warn("cannot take a socket out of an orphaned worker", zap.Int("pid", p.pid), zap.Error(err))
		}
		if ok {
			found = append(found, i)
		}
	}
	return found
}

// Sockets lists the inodes of the sockets that orphans have.
func (s *Orphans) Sockets() (inodes []uint64) {
	for _, o := range slices.Concat(s.serving, s.ending) {
		inodes = append(inodes, o.sockets...)
	}
	return inodes
}

// Serving lists the orphans that are not released yet.
func (s *Orphans) Serving() []*Orphan { return s.serving }

// Claim finds out which programs each orphan serves for: that whose worker it was, and those that have its sockets, if
// they are needed: meant to serve, and do not yet. Call it when the table has taken the sockets, and when programs were
// configured or removed since; owners calls yield with each socket that the table has now and the program that it
// belongs to.
func (s *Orphans) Claim(needed func(program string) bool, owners func(yield func(program string, fd int) bool)) {
	if len(s.serving) == 0 {
		return
	}
	of := map[uint64][]string{}
	for program, fd := range owners {
		of[inode(fd)] = append(of[inode(fd)], program)
	}
	processes := map[string]int{}
	for _, o := range s.serving {
		before := o.waits
		o.claimants = []string{o.Program}
		for _, node := range o.sockets {
			for _, name := range of[node] {
				if !slices.Contains(o.claimants, name) {
					o.claimants = append(o.claimants, name)
				}
			}
		}
		o.waits = slices.DeleteFunc(slices.Clone(o.claimants), func(name string) bool { return !needed(name) })
		for _, name := range o.waits {
			if !slices.Contains(before, name) {
				processes[name]++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(processes)) {
		s.search.Log.Warn("orphaned workers keep running until the program serves",
			zap.String("program", name), zap.Int("processes", processes[name]))
	}
}

// Release returns the orphans that are not needed any more: the caller must Await, Tell and End each of them, and then
// call Ended. needed reports whether a program does not serve yet and is meant to, and stays whether an
// orphan gets new connections as long as its generation.
func (s *Orphans) Release(needed func(program string) bool, stays func(*Orphan) bool) []*Orphan {
	var free []*Orphan
	s.serving = slices.DeleteFunc(s.serving, func(o *Orphan) bool {
		o.waits = slices.DeleteFunc(o.waits, func(program string) bool { return !needed(program) })
		if len(o.waits) > 0 {
			return false
		}
		if stays(o) {
			o.tellThatItStays(s.search.Log)
			return false
		}
		s.search.Log.Info("an orphaned worker finishes what it has in hand", zap.Int("pid", o.pid),
			zap.String("program", o.Program))
		free = append(free, o)
		return true
	})
	s.ending = append(s.ending, free...)
	return free
}

// tellThatItStays says so once.
func (o *Orphan) tellThatItStays(log *zap.Logger) {
	if !o.stays {
		o.stays = true
		log.Warn("an orphaned worker serves beside the others until its generation is replaced", zap.Int("pid", o.pid),
			zap.String("program", o.Program))
	}
}

// Tell says that an orphan is about to be told to stop: End may follow when a record has that.
func (s *Orphans) Tell(o *Orphan) {
	if o.told = true; !o.asked {
		s.search.Log.Warn("an orphaned worker is told to stop", zap.Int("pid", o.pid), zap.String("program", o.Program))
	}
}

// Ended forgets an orphan that End has ended.
func (s *Orphans) Ended(o *Orphan) {
	s.ending = slices.DeleteFunc(s.ending, func(other *Orphan) bool { return other == o })
}

// Hurry ends every Await soon: the supervisor stops.
func (s *Orphans) Hurry() {
	for _, o := range s.ending {
		o.due.Store(true)
	}
}

// Kill makes every running End kill its process now.
func (s *Orphans) Kill() {
	for _, o := range s.ending {
		o.hurry()
	}
}

// Ending lists the processes that are to go and have not gone yet.
func (s *Orphans) Ending() []int { return pidsOf(s.ending) }

// Told lists those of them that were told to stop.
func (s *Orphans) Told() []int {
	return pidsOf(slices.DeleteFunc(slices.Clone(s.ending), func(o *Orphan) bool { return !o.told && !o.asked }))
}

// Gone reports whether no process of the dead supervisor is left.
func (s *Orphans) Gone() bool { return len(s.serving)+len(s.ending) == 0 }

// Of lists the processes that serve for a program which does not serve yet.
func (s *Orphans) Of(program string) []int {
	return pidsOf(slices.DeleteFunc(slices.Clone(s.serving), func(o *Orphan) bool {
		return !slices.Contains(o.waits, program)
	}))
}

// Serve reports whether an orphan that lives serves for a program. s may be nil.
func (s *Orphans) Serve(program string) bool {
	return s != nil && slices.ContainsFunc(s.serving, func(o *Orphan) bool {
		return slices.Contains(o.waits, program) && o.lives()
	})
}

func pidsOf(orphans []*Orphan) []int {
	var pids []int
	for _, o := range orphans {
		pids = append(pids, o.pid)
	}
	return pids
}

// EndGroup kills all other processes in the control group of this process, if it is the main process of a systemd
// service: after the programs have stopped, that is what left its worker's process group, and what was below an
// adopted worker, so that it did not become a child of this process. Elsewhere the group is not ours, and EndGroup
// does nothing.
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
			p.End(config.StopPolicy{})
		}
	}
}

// group lists the other processes in the control group of this one.
func group() []*Orphan {
	var members []*Orphan
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

// Orphan is a worker without a supervisor: its process, and those that it has started.
//
//	FindOrphans ─► serving ─► Claim: which programs it serves for ─► Release ─► ending ─► Await ─► Tell ─► End ─► Ended
//
// The loop calls everything but Await and End, which wait, and run on goroutines for each orphan. What both sides use
// is atomic, or the pidfd's deadline: setting one wakes the goroutine.
type Orphan struct {
	Program string // whose worker it was

	pid       int
	pidfd     *os.File       // so that it cannot be another process
	uid       int            // whom it runs as
	path      string         // of its NOTIFY_SOCKET, which no other worker has
	leads     bool           // a session, and a process group
	began     time.Duration  // after the start of the machine
	rest      []*Orphan      // the other processes with its NOTIFY_SOCKET; they end with it
	sockets   []uint64       // the inodes of the sockets that these processes have
	streams   map[string]int // our ends of its pipes, until Streams
	waits     []string       // the programs that it serves for; empty: it can go
	claimants []string       // the program whose worker it was, and those that have its sockets
	stays     bool           // … but did not yet, and this was logged
	asked     bool           // the supervisor before this one has told it to go, or died while it did
	told      bool           // this one has, or is about to
	due       atomic.Bool    // Await is over, and nothing is said again
	now       atomic.Bool    // End is over
}

// openOrphan returns nil if there is no such process.
func openOrphan(pid int) *Orphan {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	return newOrphan(pid, fd)
}

func newOrphan(pid, pidfd int) *Orphan {
	unix.SetNonblock(pidfd, true) //nolint:errcheck // so that os.NewFile gives it to the poller
	return &Orphan{pid: pid, pidfd: os.NewFile(uintptr(pidfd), "process "+strconv.Itoa(pid)), streams: map[string]int{}}
}

// socket returns a duplicate of one of the process's descriptors, if it is a listening socket that our user has
// opened. An error says that it may be one.
func (o *Orphan) socket(number int) (s inherit.Socket, ok bool, err error) {
	fd := -1
	o.use(func(pidfd int) { fd, err = unix.PidfdGetfd(pidfd, number, 0) })
	if err != nil || fd < 0 {
		return inherit.Socket{}, false, err
	}
	var st unix.Stat_t // of the socket's inode, which belongs to its creator
	i, err := inherit.Examine(fd, "orphan")
	if err != nil || !i.Listens || i.Network == "unixgram" || unix.Fstat(fd, &st) != nil || int(st.Uid) != os.Geteuid() {
		unix.Close(fd)
		return inherit.Socket{}, false, nil
	}
	i.Ours, i.InUse = true, true
	return i, true, nil
}

// takeStreams opens the pipes of the worker's output, so that it does not wait for somebody who reads. links are its
// descriptors.
func (o *Orphan) takeStreams(links map[int]string) {
	for number, name := range map[int]string{1: worker.FDStdout, 2: worker.FDStderr} {
		if strings.HasPrefix(links[number], "pipe:") {
			if fd := o.pipe(number); fd >= 0 {
				o.streams[name] = fd
			}
		}
	}
}

// pipe opens the reading end of a pipe that a supervisor has made: it is open for reading and writing in the worker.
// -1: it is another one.
func (o *Orphan) pipe(number int) int {
	fd, err := -1, error(nil)
	o.use(func(pidfd int) { fd, err = unix.PidfdGetfd(pidfd, number, 0) })
	if err != nil || fd < 0 {
		return -1
	}
	defer unix.Close(fd)
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return -1
	}
	read, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return read
}

// PID returns the process of the worker.
func (o *Orphan) PID() int { return o.pid }

// Credential says whom the worker runs as, and who owns its log files.
func (o *Orphan) Credential() *spawn.Credential { return &spawn.Credential{UID: uint32(o.uid)} }

// Streams returns the pipes of the worker's output by their names, worker.FDStdout and worker.FDStderr, once: they are
// the caller's.
func (o *Orphan) Streams() (streams map[string]int) {
	streams, o.streams = o.streams, nil
	return streams
}

// use calls f with the pidfd, unless it is closed.
func (o *Orphan) use(f func(pidfd int)) {
	if conn, err := o.pidfd.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { f(int(fd)) }) //nolint:errcheck // closed: then it has ended
	}
}

// orphanTimeout is how long an orphan whose program is gone may drain.
const orphanTimeout = 30 * time.Second

// Claimants returns the program whose worker the orphan was, and those that have its sockets, as of the last Claim.
func (o *Orphan) Claimants() []string { return o.claimants }

// Sockets returns the inodes of the sockets that the worker has.
func (o *Orphan) Sockets() []uint64 { return o.sockets }

// Await waits until the process has nothing in hand, has ended, or was told to stop before, for this time at most.
// Call it before End. look finds out whether the process has nothing in hand, or when to look again, given how long
// ago the first look was.
func (o *Orphan) Await(look func(age time.Duration) (quiet bool, again time.Duration), limit time.Duration) {
	for began := time.Now(); !o.asked; {
		age := time.Since(began)
		quiet, again := look(age)
		if quiet || age >= limit {
			return
		}
		o.pidfd.SetReadDeadline(time.Now().Add(min(again, limit-age))) //nolint:errcheck // a pidfd is in the poller
		if o.due.Load() || o.ended() {
			return
		}
	}
}

// End sends the signals of a stop plan to the worker, as to one that is not an orphan, until its process has ended,
// and KILL after the last step or when there is no more time. It waits for the end, and kills what is left of the
// worker. A second TERM means now to many programs, so one that was asked before gets the first signal again only after
// the time in which it should have ended.
func (o *Orphan) End(stop config.StopPolicy) {
	defer o.pidfd.Close()
	defer o.killRest()
	for i, step := range stop.Steps {
		if i == 0 && o.asked {
			o.signal(syscall.SIGCONT, stop.Group) // see below
			if o.endedWithin(min(cmp.Or(step.Wait, orphanTimeout), orphanTimeout)) {
				return
			}
			if o.due.Load() {
				continue
			}
		}
		o.signal(step.Signal, stop.Group)
		if i == 0 { // the supervisord that died may have halted it for a look at what it has in hand
			o.signal(syscall.SIGCONT, stop.Group)
		}
		if o.endedWithin(step.Wait) {
			return
		}
		if o.now.Load() {
			break
		}
	}
	o.signal(syscall.SIGKILL, false)
	o.pidfd.SetReadDeadline(time.Now().Add(time.Second)) //nolint:errcheck // a pidfd is in the poller
	o.ended()
}

// endedWithin waits until the process has ended, for this time, or until hurry.
func (o *Orphan) endedWithin(limit time.Duration) bool {
	var deadline time.Time
	if limit != config.Forever {
		deadline = time.Now().Add(limit)
	}
	o.pidfd.SetReadDeadline(deadline) //nolint:errcheck // a pidfd is in the poller
	return !o.now.Load() && o.ended()
}

// DefaultStop is the stop plan of an orphan whose program is gone.
func DefaultStop() config.StopPolicy {
	return config.StopPolicy{Steps: []config.StopStep{{Signal: syscall.SIGTERM, Wait: orphanTimeout}}}
}

// killRest kills what is left of a worker whose process has ended: its process group, and what else has its
// NOTIFY_SOCKET.
func (o *Orphan) killRest() {
	// A group keeps its number from being reused. If the process is still there as a zombie, or none has its number,
	// the group is its own.
	if o.leads && (o.lives() || errors.Is(unix.Kill(o.pid, 0), unix.ESRCH)) {
		unix.Kill(-o.pid, syscall.SIGKILL) //nolint:errcheck // nothing may be left
	}
	for _, p := range o.rest {
		p.End(config.StopPolicy{})
	}
}

// hurry makes End kill the process now.
func (o *Orphan) hurry() {
	o.due.Store(true)
	o.now.Store(true)
	o.pidfd.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // closed: it has ended
}

func (o *Orphan) signal(sig syscall.Signal, group bool) {
	o.use(func(pidfd int) {
		if group && o.leads && proc.Exists(pidfd) {
			unix.Kill(-o.pid, sig) //nolint:errcheck // it may have ended
			return
		}
		unix.PidfdSendSignal(pidfd, sig, nil, 0) //nolint:errcheck // likewise
	})
}

// ended waits until the process has ended, or for the deadline.
func (o *Orphan) ended() bool {
	conn, err := o.pidfd.SyscallConn()
	if err != nil {
		return true
	}
	return conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	}) == nil
}

// lives reports whether the process has not ended.
func (o *Orphan) lives() bool {
	lives := false
	o.use(func(pidfd int) { lives = proc.Exists(pidfd) })
	return lives
}

package supervisor

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/socket"
	"example.org/supervisord/worker"
)

// Leftovers are worker processes whose supervisor died and left nothing that could be restored: no file-descriptor store,
// or a worker that was spawned in the instant of the death. They serve still, on sockets that a new supervisor could not bind.
type Leftovers struct {
	processes []leftover
	log       *zap.Logger
}

type leftover struct {
	pid, pidfd int
}

// FindLeftovers finds the processes that were workers of a supervisor with this runtime directory which is gone. A worker
// is known by the NOTIFY_SOCKET in its environment, and its supervisor to be gone when nobody listens there.
func FindLeftovers(runtimeDir string, log *zap.Logger) *Leftovers {
	l := &Leftovers{log: log}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return l
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			l.look(pid, runtimeDir)
		}
	}
	return l
}

func (l *Leftovers) look(pid int, runtimeDir string) {
	pidfd, err := unix.PidfdOpen(pid, 0) // first, so that what is read below is about this process
	if err != nil {
		return
	}
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	path := ""
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, []byte("NOTIFY_SOCKET=")); ok {
			path = string(v)
		}
	}
	if err != nil || !strings.HasPrefix(path, filepath.Join(runtimeDir, "notify.")) || !sameNamespace(pid) || listened(path) {
		unix.Close(pidfd)
		return
	}
	l.processes = append(l.processes, leftover{pid, pidfd})
}

// sameNamespace reports whether a process is in our PID namespace. One in a container has a supervisor, and paths, of its own.
func sameNamespace(pid int) bool {
	theirs, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/pid")
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
func (l *Leftovers) Take(h *Handover) {
	for _, pidfd := range h.unknown() {
		pid, err := worker.ProcessOf(pidfd)
		if err != nil || pid <= 0 || slices.ContainsFunc(l.processes, func(p leftover) bool { return p.pid == pid }) {
			unix.Close(pidfd)
			continue
		}
		l.processes = append(l.processes, leftover{pid, pidfd})
	}
}

// Sockets takes the listening sockets out of the leftover processes (pidfd_getfd(2)), so that no client is refused between
// them and the workers to come. It needs the right to trace them, as root or the same user has; without it there are none.
func (l *Leftovers) Sockets() []socket.Inherit {
	var found []socket.Inherit
	inodes := map[string]bool{}
	for _, p := range l.processes {
		dir := "/proc/" + strconv.Itoa(p.pid) + "/fd"
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			link, err := os.Readlink(dir + "/" + e.Name())
			number, errNumber := strconv.Atoi(e.Name())
			if err != nil || errNumber != nil || !strings.HasPrefix(link, "socket:") || inodes[link] {
				continue
			}
			inodes[link] = true
			if i, ok := takeSocket(p.pidfd, number); ok {
				found = append(found, i)
			}
		}
	}
	return found
}

func takeSocket(pidfd, number int) (socket.Inherit, bool) {
	fd, err := unix.PidfdGetfd(pidfd, number, 0)
	if err != nil {
		return socket.Inherit{}, false
	}
	i, err := socket.Examine(fd, "leftover")
	if err != nil || !i.Listens || i.Network == "unixgram" {
		unix.Close(fd)
		return socket.Inherit{}, false
	}
	i.Ours, i.InUse = true, true
	return i, true
}

// leftoverTimeout is how long leftovers may drain. Their own stop plan died with their supervisor.
const leftoverTimeout = 30 * time.Second

// End tells the leftovers to stop, and kills those that do not. It returns at once; wait returns when all are gone.
func (l *Leftovers) End() (wait func()) {
	done := make(chan struct{})
	for _, p := range l.processes {
		l.log.Warn("a worker of a supervisord that died is told to stop", zap.Int("pid", p.pid))
		unix.PidfdSendSignal(p.pidfd, syscall.SIGTERM, nil, 0) //nolint:errcheck // it may have ended
	}
	go func() {
		defer close(done)
		deadline := time.Now().Add(leftoverTimeout)
		for _, p := range l.processes {
			p.end(deadline)
		}
	}()
	return func() { <-done }
}

func (p leftover) end(deadline time.Time) {
	defer unix.Close(p.pidfd)
	if p.ended(time.Until(deadline)) {
		return
	}
	unix.PidfdSendSignal(p.pidfd, syscall.SIGKILL, nil, 0) //nolint:errcheck // it may have ended
	p.ended(time.Second)
}

// ended waits until the process has ended, or for so long.
func (p leftover) ended(within time.Duration) bool {
	end := time.Now().Add(within)
	for {
		left := max(0, int(time.Until(end).Milliseconds()))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}, left)
		if err == unix.EINTR {
			continue
		}
		return n > 0
	}
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
			p.end(time.Now())
		}
	}
}

// group lists the other processes in the control group of this one (cgroups(7)).
func group() []leftover {
	text, err := os.ReadFile("/proc/self/cgroup")
	_, path, found := strings.Cut("\n"+string(text), "\n0::")
	if err != nil || !found {
		return nil
	}
	path, _, _ = strings.Cut(path, "\n")
	list, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "cgroup.procs"))
	if err != nil { // version 1 beside version 2
		list, _ = os.ReadFile(filepath.Join("/sys/fs/cgroup/unified", path, "cgroup.procs"))
	}
	var members []leftover
	for word := range strings.FieldsSeq(string(list)) {
		pid, err := strconv.Atoi(word)
		if err != nil || pid <= 0 || pid == os.Getpid() {
			continue
		}
		if pidfd, err := unix.PidfdOpen(pid, 0); err == nil {
			members = append(members, leftover{pid, pidfd})
		}
	}
	return members
}

// Offer adds sockets to what was handed over.
func (h *Handover) Offer(sockets []socket.Inherit) { h.sockets = append(h.sockets, sockets...) }

// Package proc reads what the kernel says about processes in /proc, and what the user database says about users and
// groups.
//
// It is the module's only reader of these files. Functions that take a PID say nothing about PID reuse: hold a pidfd
// and check with Exists after the read where the answer must be about one particular process. Some files (environ,
// cmdline, smaps_rollup, …) are made of the memory of the process, which can delay the reader for as long as it likes:
// read them through foreign.Looks when the process may be hostile. What the kernel shows only to some is read as the
// owner of the process: see AsOwner.
//
// prometheus/procfs, which comes with the metrics, is not used: it has no children, descriptors by link, pidfds or
// accounts, so most of this package would stay.
package proc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
)

// Path returns the path of a file in the directory of a process: Path(7, "stat") is /proc/7/stat.
func Path(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }

// read reads a file of /proc with four system calls: os.ReadFile makes ten, because it offers each file to the poller,
// and supervisord reads dozens while a worker starts.
func read(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 512)
	for {
		n, err := unix.Read(fd, text[len(text):cap(text)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return text, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return text, nil
		}
		if text = text[:len(text)+n]; len(text) == cap(text) {
			text = slices.Grow(text, len(text))
		}
	}
}

// PIDs lists the processes that can be seen.
func PIDs() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Name returns the command name of a process (proc_pid_comm(5)), or "". The process chooses it: what cannot be printed
// is replaced by question marks.
func Name(pid int) string {
	name, _ := read(Path(pid, "comm"))
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.TrimSuffix(string(name), "\n"))
}

// Status returns the lines of /proc/PID/status by name, without the colon (proc_pid_status(5)).
func Status(pid int) (map[string]string, error) { return linesOf(read(Path(pid, "status"))) }

// DescriptorInfo returns the lines about a descriptor of a process by name, without the colon (proc_pid_fdinfo(5)).
func DescriptorInfo(pid, number int) (map[string]string, error) {
	return linesOf(ReadFile(pid, "fdinfo/"+strconv.Itoa(number)))
}

// linesOf takes what was read and the error of that.
func linesOf(text []byte, err error) (map[string]string, error) {
	if err != nil {
		return nil, err
	}
	lines := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found {
			lines[key] = strings.TrimSpace(value)
		}
	}
	return lines, nil
}

// lineOf returns the value of one line, as linesOf does for all of them but the first; "": there is no such line.
func lineOf(text []byte, name string) string {
	_, line, _ := bytes.Cut(text, []byte("\n"+name+":"))
	line, _, _ = bytes.Cut(line, []byte{'\n'})
	return string(bytes.TrimSpace(line))
}

// Call is the system call in which a thread is: its number, and the arguments.
type Call struct {
	Number int
	Args   [6]uint64
}

// ParseCall reads the content of /proc/PID/task/TID/syscall (proc_pid_syscall(5)), such as
// "49 0x3 0x7ffc0000 0x10 0x0 0x0 0x0 0x7ffc 0x7f". is is false for a thread that runs, or waits elsewhere.
func ParseCall(text string) (c Call, is bool) {
	words := strings.Fields(text)
	if len(words) < 1+len(c.Args) {
		return c, false
	}
	number, err := strconv.ParseInt(words[0], 10, 32)
	for i := range c.Args {
		var bad error
		c.Args[i], bad = strconv.ParseUint(words[1+i], 0, 64)
		err = errors.Join(err, bad)
	}
	c.Number = int(number)
	return c, err == nil
}

// ReadMemory reads from the memory of a process, or of a thread, which needs the rights of ptrace(2). The error is nil
// only if everything was read.
func ReadMemory(pid int, at uint64, size int) (data []byte, err error) {
	var file *os.File
	AsOwner(pid, func() { file, err = os.Open(Path(pid, "mem")) })
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data = make([]byte, size)
	_, err = file.ReadAt(data, int64(at))
	return data, err
}

// Sleeping reports whether every thread of these processes sleeps until something happens, and how often each has gone
// to sleep: one that has the same number later has slept all the time. It is false where a process cannot be looked at;
// one that is gone sleeps.
func Sleeping(pids []int) (naps map[string]string, all bool) {
	naps = map[string]string{}
	all = allIn(pids, "SIZX", func(thread string, status []byte) {
		naps[thread] = lineOf(status, "voluntary_ctxt_switches")
	})
	return naps, all
}

// Naps says how often a thread of a process has gone to sleep, as Sleeping does; "": it is gone.
func Naps(pid int, thread string) string {
	status, _ := read(Path(pid, "task/"+thread+"/status"))
	return lineOf(status, "voluntary_ctxt_switches")
}

// Dies reports whether a signal ends a process that it is sent to: its action is to end the process, and the process
// does not ignore, catch or block it (signal(7)). It is false where the process cannot be looked at.
func Dies(pid int, signal syscall.Signal) bool {
	switch signal {
	case unix.SIGCHLD, unix.SIGCONT, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGURG, unix.SIGWINCH:
		return false
	}
	return !inSet(pid, signal, "SigIgn", "SigCgt", "SigBlk")
}

// Blocks reports whether the first thread of a process blocks a signal. It is true where the process cannot be looked
// at.
func Blocks(pid int, signal syscall.Signal) bool { return inSet(pid, signal, "SigBlk") }

// inSet reports whether a signal is in one of these sets of /proc/PID/status, or the process cannot be looked at.
func inSet(pid int, signal syscall.Signal, sets ...string) bool {
	status, err := Status(pid)
	return err != nil || slices.ContainsFunc(sets, func(set string) bool {
		bits, err := strconv.ParseUint(status[set], 16, 64)
		return err != nil || bits>>(signal-1)&1 == 1
	})
}

// Stopped reports whether a signal has stopped every thread of these processes. It is false where a process cannot be
// looked at; one that is gone is stopped.
func Stopped(pids []int) bool { return allIn(pids, "TtZX", func(string, []byte) {}) }

// allIn reports whether every thread of these processes is gone, or in one of these states. It hands over the status of
// each.
func allIn(pids []int, states string, visit func(thread string, status []byte)) bool {
	all := true
	for _, pid := range pids {
		threads, err := os.ReadDir(Path(pid, "task"))
		all = all && (err == nil || Gone(err))
		for _, t := range threads {
			status, err := read(Path(pid, "task/"+t.Name()+"/status"))
			state := lineOf(status, "State")
			in := err == nil && state != "" && strings.Contains(states, state[:1])
			all = all && (in || err != nil && Gone(err))
			visit(t.Name(), status)
		}
	}
	return all
}

// Environ returns the environment that a process was started with. It can be delayed by the process: see the package
// comment.
func Environ(pid int) (map[string]string, error) {
	text, err := ReadFile(pid, "environ")
	return parseEnviron(text), err
}

// BoundedEnviron is Environ for a process that may be hostile. It waits for at most a second.
func BoundedEnviron(l *foreign.Looks, pid int) (map[string]string, error) {
	text, err := l.Read(Path(pid, "environ"), func() ([]byte, error) { return ReadFile(pid, "environ") })
	return parseEnviron(text), err
}

// parseEnviron reads the content of /proc/PID/environ. Of two variables with one name the first counts, as with
// getenv(3).
func parseEnviron(text []byte) map[string]string {
	environ := map[string]string{}
	for variable := range bytes.SplitSeq(text, []byte{0}) {
		name, value, found := strings.Cut(string(variable), "=")
		if _, known := environ[name]; found && !known {
			environ[name] = value
		}
	}
	return environ
}

// Descriptors returns where the descriptors of a process lead, by number: a path, or "socket:[INODE]", "pipe:[INODE]",
// "anon_inode:[eventpoll]" and so on. Descriptors that are closed meanwhile are left out.
func Descriptors(pid int) (links map[int]string, err error) {
	AsOwner(pid, func() { links, err = descriptors(pid) })
	return links, err
}

func descriptors(pid int) (map[int]string, error) {
	dir := Path(pid, "fd/")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	links := make(map[int]string, len(entries))
	for _, entry := range entries {
		link, err := os.Readlink(dir + entry.Name())
		switch number, bad := strconv.Atoi(entry.Name()); {
		case bad != nil || Gone(err):
		case err != nil:
			return links, err
		default:
			links[number] = link
		}
	}
	return links, nil
}

// SocketInode returns the inode in the link of a descriptor that is a socket.
func SocketInode(link string) (inode uint64, isSocket bool) {
	number, begins := strings.CutPrefix(link, "socket:[")
	number, ends := strings.CutSuffix(number, "]")
	inode, err := strconv.ParseUint(number, 10, 64)
	return inode, begins && ends && err == nil
}

// EpollTarget is a descriptor that an epoll set watches.
type EpollTarget struct {
	Number int // in the process that added it, at that time
	Events uint32
	Data   uint64
	Inode  uint64
	Device string // of the file system with Inode
}

// EpollTargets lists what the epoll set behind a descriptor of a process watches (proc_pid_fdinfo(5)).
func EpollTargets(pid, fd int) ([]EpollTarget, error) {
	text, err := ReadFile(pid, "fdinfo/"+strconv.Itoa(fd))
	return targetsIn(string(text)), err
}

// targetsIn reads lines such as "tfd: 5 events: 19 data: 5  pos:0 ino:1f2e sdev:8".
func targetsIn(fdinfo string) (list []EpollTarget) {
	for line := range strings.Lines(fdinfo) {
		words := strings.Fields(strings.ReplaceAll(line, ":", ": "))
		values := map[string]string{}
		for i := 0; i+1 < len(words); i += 2 {
			values[words[i]] = words[i+1]
		}
		number, err1 := strconv.Atoi(values["tfd:"])
		events, err2 := strconv.ParseUint(values["events:"], 16, 32)
		data, err3 := strconv.ParseUint(values["data:"], 16, 64)
		inode, err4 := strconv.ParseUint(values["ino:"], 16, 64)
		if errors.Join(err1, err2, err3, err4) == nil {
			list = append(list, EpollTarget{number, uint32(events), data, inode, values["sdev:"]})
		}
	}
	return list
}

// Gone reports whether err says that a process, or a file in its directory, no longer exists.
func Gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// Stat is what /proc/PID/stat says about a process (proc_pid_stat(5)).
type Stat struct {
	PID, Parent    int
	Group, Session int
	State          byte          // R, S, D, Z, …
	CPU            time.Duration // user and system time, including that of threads that have ended
	Began          time.Duration // since the machine was booted; tells a process from a later one with the same PID
	Virtual        int64         // bytes
	Resident       int64         // bytes; a page that several processes share counts for each
}

// Dead reports whether the process has ended and only waits to be reaped.
func (s Stat) Dead() bool { return s.State == 'Z' || s.State == 'X' }

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 wherever Go runs.
const tick = time.Second / 100

// ReadStat reads /proc/PID/stat.
func ReadStat(pid int) (Stat, error) {
	line, err := read(Path(pid, "stat"))
	if err != nil {
		return Stat{}, err
	}
	return parseStat(line)
}

// Parent returns the PID of a process's parent, as ReadStat does, at a tenth of the cost from Linux 6.13 on, which has
// PIDFD_GET_INFO.
func Parent(pid int) (int, error) {
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		defer unix.Close(fd)
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_PID}
		if unix.IoctlPidfdInfo(fd, &info) == nil && info.Mask&unix.PIDFD_INFO_PID != 0 {
			return int(info.Ppid), nil
		}
	}
	stat, err := ReadStat(pid)
	return stat.Parent, err
}

// Stats reads /proc/PID/stat of every process that can be seen.
func Stats() (all []Stat) {
	for _, pid := range PIDs() {
		if s, err := ReadStat(pid); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// statBits are the fields that are read, and their sizes with the sign: ppid, pgrp, session (the last two are -1 while
// the process is being reaped), utime, stime, starttime, vsize, rss. More bits would overflow what is made of them.
var statBits = map[int]int{1: 32, 2: 32, 3: 32, 11: 39, 12: 39, 19: 39, 20: 64, 21: 48}

func parseStat(line []byte) (Stat, error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')') // the name between them may contain anything
	if open < 1 || end < open {
		return Stat{}, errors.New("not a line of /proc/PID/stat: the name is missing")
	}
	fields := bytes.Fields(line[end+1:]) // from field 3 on
	if len(fields) < 22 || len(fields[0]) != 1 {
		return Stat{}, errors.New("not a line of /proc/PID/stat: it is too short")
	}
	var values [22]int64
	for i, bits := range statBits {
		n, err := strconv.ParseInt(string(fields[i]), 10, bits)
		if err != nil || n < 0 && i > 3 {
			return Stat{}, fmt.Errorf("field %d of /proc/PID/stat is %q: %w", i+3, fields[i], cmp.Or(err, strconv.ErrRange))
		}
		values[i] = n
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(line[:open])))
	return Stat{
		PID: pid, Parent: int(values[1]), Group: int(values[2]), Session: int(values[3]), State: fields[0][0],
		CPU: time.Duration(values[11]+values[12]) * tick, Began: time.Duration(values[19]) * tick,
		Virtual: values[20], Resident: values[21] * int64(os.Getpagesize()),
	}, err
}

// BootTime returns when the machine was booted, to the second.
func BootTime() (time.Time, error) {
	text, err := read("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	return bootIn(string(text))
}

func bootIn(text string) (time.Time, error) {
	_, rest, _ := strings.Cut(text, "\nbtime ")
	line, _, _ := strings.Cut(rest, "\n")
	seconds, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("btime in /proc/stat: %w", err)
	}
	return time.Unix(seconds, 0), nil
}

// Children lists the children of a process, those of all its threads (proc_tid_children(5)). Zombies are among them. A
// kernel without CONFIG_PROC_CHILDREN has no such lists, and Children finds nothing.
func Children(pid int) []int {
	tasks := Path(pid, "task/")
	threads, _ := os.ReadDir(tasks)
	var pids []int
	for _, thread := range threads {
		pids = append(pids, childrenIn(tasks+thread.Name()+"/children")...)
	}
	return pids
}

// childReads bounds how often a list of children is read that is another one each time.
const childReads = 10

// childrenIn reads a list of children until it is the same twice: the kernel leaves a child out if one before it in the
// list is reaped during the read. It never leaves out all.
func childrenIn(path string) []int {
	pids := readPIDs(path)
	for n := 1; n < childReads && len(pids) > 0; n++ {
		before := pids
		if pids = readPIDs(path); slices.Equal(pids, before) {
			break
		}
	}
	return pids
}

// OwnChildren lists the children of the calling process that belong to its first thread. Orphans that a subreaper
// inherits are all among them: the kernel gives them to the first thread that lives, which in Go is the main thread.
// The list is complete only if the caller reaps no child meanwhile: see childrenIn.
func OwnChildren() []int {
	pid := os.Getpid()
	return readPIDs(Path(pid, "task/"+strconv.Itoa(pid)+"/children"))
}

// Descendants lists the children of a process, their children, and so on.
func Descendants(pid int) []int {
	var all []int
	for next := []int{pid}; len(next) > 0; {
		children := Children(next[0])
		all = append(all, children...)
		next = append(next[1:], children...)
	}
	return all
}

// readPIDs reads a list of numbers separated by white space; nothing if the file is not there.
func readPIDs(path string) []int {
	text, _ := read(path)
	return pidsIn(string(text))
}

func pidsIn(text string) (pids []int) {
	for word := range strings.FieldsSeq(text) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// PIDOf returns the PID of the process that a pidfd refers to, or -1 if that process was reaped. Before Linux 6.13,
// which has PIDFD_GET_INFO, it needs a descriptor to read proc_pid_fdinfo(5); an error of that is a *fs.PathError.
func PIDOf(pidfd int) (int, error) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_PID}
	if unix.IoctlPidfdInfo(pidfd, &info) == nil && info.Mask&unix.PIDFD_INFO_PID != 0 {
		return int(info.Pid), nil
	}
	if unix.PidfdSendSignal(pidfd, 0, nil, 0) == unix.ESRCH {
		return -1, nil
	}
	lines, err := DescriptorInfo(os.Getpid(), pidfd)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(lines["Pid"])
	if err != nil {
		return 0, fmt.Errorf("descriptor %d is not a pidfd", pidfd)
	}
	return pid, nil
}

// Exists reports whether the process of a pidfd exists, if only as a zombie, so that its PID belongs to no other
// process.
func Exists(pidfd int) bool { return unix.PidfdSendSignal(pidfd, 0, nil, 0) == nil }

// ExitStatus returns the exit status of the process of a pidfd. It works for any process, but only after its parent has
// reaped it, and from Linux 6.15 on.
func ExitStatus(pidfd int) (status syscall.WaitStatus, known bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(pidfd, &info); err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return 0, false
	}
	return syscall.WaitStatus(info.Exit_code), true
}

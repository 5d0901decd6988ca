//go:build amd64

package faults

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// unasked are the calls that go straight to the kernel, unless their arguments tell otherwise.
var unasked = []struct {
	nr     int
	unless []unix.SockFilter
}{
	// Go's runtime makes these for itself, and ends the program, as documented, where they can fail.
	{nr: unix.SYS_FUTEX}, {nr: unix.SYS_NANOSLEEP}, {nr: unix.SYS_CLOCK_NANOSLEEP}, {nr: unix.SYS_SCHED_YIELD},
	{nr: unix.SYS_RESTART_SYSCALL},
	{nr: unix.SYS_EPOLL_PWAIT}, {nr: unix.SYS_EVENTFD2}, {nr: unix.SYS_SET_ROBUST_LIST}, {nr: unix.SYS_RSEQ},
	{nr: unix.SYS_SET_TID_ADDRESS},
	{nr: unix.SYS_RT_SIGACTION}, {nr: unix.SYS_RT_SIGPROCMASK}, {nr: unix.SYS_RT_SIGRETURN}, {nr: unix.SYS_SIGALTSTACK},
	{nr: unix.SYS_TGKILL},
	{nr: unix.SYS_MUNMAP}, {nr: unix.SYS_MADVISE}, {nr: unix.SYS_MPROTECT}, {nr: unix.SYS_BRK}, {nr: unix.SYS_ARCH_PRCTL},
	{nr: unix.SYS_SCHED_GETAFFINITY}, {nr: unix.SYS_MEMBARRIER}, {nr: unix.SYS_GETRANDOM}, {nr: unix.SYS_SECCOMP},
	{unix.SYS_CLONE, when(0, unix.CLONE_THREAD, 0)},            // a process
	{unix.SYS_MMAP, when(3, unix.MAP_SHARED, unix.MAP_SHARED)}, // memory that a child shares
	{unix.SYS_PRCTL, when(0, 0xff000000, 0)},                   // anything but PR_SET_VMA, which names memory
	// These cannot fail, but for an argument that is wrong.
	{nr: unix.SYS_GETPID}, {nr: unix.SYS_GETTID}, {nr: unix.SYS_GETPPID}, {nr: unix.SYS_GETPGID}, {nr: unix.SYS_GETSID},
	{nr: unix.SYS_UMASK}, {nr: unix.SYS_UNAME},
	{nr: unix.SYS_GETUID}, {nr: unix.SYS_GETEUID}, {nr: unix.SYS_GETGID}, {nr: unix.SYS_GETEGID}, {nr: unix.SYS_GETGROUPS},
	{nr: unix.SYS_CLOCK_GETTIME}, {nr: unix.SYS_GETTIMEOFDAY}, {nr: unix.SYS_LSEEK}, {nr: unix.SYS_EXIT},
	{nr: unix.SYS_EXIT_GROUP},
	{nr: unix.SYS_GETRUSAGE}, {nr: unix.SYS_SYSINFO}, {nr: unix.SYS_GETSOCKNAME}, {nr: unix.SYS_GETPEERNAME},
	{nr: unix.SYS_SHUTDOWN}, {nr: unix.SYS_GETCWD},
	{unix.SYS_GETSOCKOPT, when(2, 0xffffffff, unix.SO_PEERPIDFD)}, // which makes a descriptor
	// The kernel closes the descriptor even if it reports an error. An answer from here would leave it open.
	{nr: unix.SYS_CLOSE},
}

// call describes a system call: its number, what its arguments mean, one letter each, and how it may fail, by its
// manual page.
//
//	p path    a name in memory
//	f file    a descriptor
//	n number  part of what the call is about, such as an option
//	.         anything else
type call struct {
	nr        int
	arguments string
	errnos    []unix.Errno
}

var (
	opens   = []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM}
	looks   = []unix.Errno{unix.ENOMEM, unix.EIO, unix.EACCES}
	changes = []unix.Errno{unix.ENOSPC, unix.EIO, unix.EPERM, unix.ENOMEM}
)

func and(more []unix.Errno, errnos ...unix.Errno) []unix.Errno {
	return append(slices.Clone(more), errnos...)
}

var calls = map[string]call{
	// files
	"openat":     {unix.SYS_OPENAT, ".pn", and(opens, unix.EINTR, unix.EIO, unix.EACCES)},
	"read":       {unix.SYS_READ, "f", []unix.Errno{unix.EINTR}},
	"pread64":    {unix.SYS_PREAD64, "f", []unix.Errno{unix.EINTR}},
	"write":      {unix.SYS_WRITE, "f", []unix.Errno{unix.EINTR}},
	"pwrite64":   {unix.SYS_PWRITE64, "f", []unix.Errno{unix.EINTR}},
	"writev":     {unix.SYS_WRITEV, "f", []unix.Errno{unix.EINTR}},
	"fstat":      {unix.SYS_FSTAT, "f", []unix.Errno{unix.ENOMEM, unix.EIO}},
	"newfstatat": {unix.SYS_NEWFSTATAT, ".p", looks},
	"statx":      {unix.SYS_STATX, ".p", looks},
	"statfs":     {unix.SYS_STATFS, "p", looks},
	"fstatfs":    {unix.SYS_FSTATFS, "f", []unix.Errno{unix.EIO, unix.ENOMEM}},
	"access":     {unix.SYS_ACCESS, "p", looks},
	"faccessat":  {unix.SYS_FACCESSAT, ".p", looks},
	"faccessat2": {unix.SYS_FACCESSAT2, ".p", looks},
	"getxattr":   {unix.SYS_GETXATTR, "p", looks},
	"lgetxattr":  {unix.SYS_LGETXATTR, "p", looks},
	"readlink":   {unix.SYS_READLINK, "p", looks},
	"readlinkat": {unix.SYS_READLINKAT, ".p", looks},
	"getdents64": {unix.SYS_GETDENTS64, "f", []unix.Errno{unix.EIO, unix.ENOMEM}},
	"mkdirat":    {unix.SYS_MKDIRAT, ".p", changes},
	"mknodat":    {unix.SYS_MKNODAT, ".p", changes},
	"unlinkat":   {unix.SYS_UNLINKAT, ".p", []unix.Errno{unix.EIO, unix.EPERM, unix.ENOMEM}},
	"renameat":   {unix.SYS_RENAMEAT, ".p.p", changes},
	"renameat2":  {unix.SYS_RENAMEAT2, ".p.pn", changes},
	"symlinkat":  {unix.SYS_SYMLINKAT, "p.p", changes},
	"linkat":     {unix.SYS_LINKAT, ".p.p", changes},
	"fchmod":     {unix.SYS_FCHMOD, "f", []unix.Errno{unix.EIO, unix.EPERM}},
	"fchmodat":   {unix.SYS_FCHMODAT, ".p", []unix.Errno{unix.EIO, unix.EPERM}},
	"fchown":     {unix.SYS_FCHOWN, "f", []unix.Errno{unix.EIO, unix.EPERM}},
	"fchownat":   {unix.SYS_FCHOWNAT, ".p", []unix.Errno{unix.EIO, unix.EPERM}},
	"ftruncate":  {unix.SYS_FTRUNCATE, "f", []unix.Errno{unix.EIO, unix.ENOSPC, unix.EINTR}},
	"fallocate":  {unix.SYS_FALLOCATE, "f", []unix.Errno{unix.EIO, unix.ENOSPC, unix.EINTR}},
	"fsync":      {unix.SYS_FSYNC, "f", []unix.Errno{unix.EIO, unix.ENOSPC, unix.EINTR}},
	"flock":      {unix.SYS_FLOCK, "f", []unix.Errno{unix.EINTR, unix.ENOLCK}},
	"chdir":      {unix.SYS_CHDIR, "p", looks},
	"fchdir":     {unix.SYS_FCHDIR, "f", []unix.Errno{unix.EACCES}},

	// descriptors
	"fcntl":             {unix.SYS_FCNTL, "fn", nil}, // see kind.faults
	"ioctl":             {unix.SYS_IOCTL, "fn", []unix.Errno{unix.ENOMEM}},
	"dup3":              {unix.SYS_DUP3, "", []unix.Errno{unix.EMFILE, unix.EINTR, unix.EBUSY}},
	"close_range":       {unix.SYS_CLOSE_RANGE, "n", []unix.Errno{unix.EMFILE, unix.ENOMEM}},
	"pipe2":             {unix.SYS_PIPE2, "", opens},
	"memfd_create":      {unix.SYS_MEMFD_CREATE, "p", opens},
	"timerfd_create":    {unix.SYS_TIMERFD_CREATE, "", opens},
	"timerfd_settime":   {unix.SYS_TIMERFD_SETTIME, "", []unix.Errno{unix.ECANCELED}},
	"epoll_create1":     {unix.SYS_EPOLL_CREATE1, "", opens},
	"epoll_ctl":         {unix.SYS_EPOLL_CTL, ".nf", []unix.Errno{unix.ENOMEM, unix.ENOSPC}},
	"epoll_wait":        {unix.SYS_EPOLL_WAIT, "", []unix.Errno{unix.EINTR}},
	"poll":              {unix.SYS_POLL, "", []unix.Errno{unix.EINTR, unix.ENOMEM}},
	"ppoll":             {unix.SYS_PPOLL, "", []unix.Errno{unix.EINTR, unix.ENOMEM}},
	"inotify_init1":     {unix.SYS_INOTIFY_INIT1, "", opens},
	"inotify_add_watch": {unix.SYS_INOTIFY_ADD_WATCH, ".p", []unix.Errno{unix.ENOSPC, unix.ENOMEM}},

	// sockets
	"socket":     {unix.SYS_SOCKET, "nnn", and(opens, unix.ENOBUFS)},
	"socketpair": {unix.SYS_SOCKETPAIR, "nn", opens},
	"bind":       {unix.SYS_BIND, "f", []unix.Errno{unix.EADDRINUSE, unix.ENOMEM, unix.EACCES}},
	"listen":     {unix.SYS_LISTEN, "f", []unix.Errno{unix.EADDRINUSE, unix.ENOMEM}},
	// ECONNREFUSED is an answer: nobody listens
	"connect":    {unix.SYS_CONNECT, "f", []unix.Errno{unix.EAGAIN, unix.ENOMEM}},
	"accept4":    {unix.SYS_ACCEPT4, "f", and(opens, unix.ENOBUFS, unix.ECONNABORTED, unix.EINTR)},
	"setsockopt": {unix.SYS_SETSOCKOPT, "fnn", []unix.Errno{unix.ENOMEM, unix.ENOBUFS, unix.EPERM}},
	"getsockopt": {unix.SYS_GETSOCKOPT, "fnn", opens},
	"sendto":     {unix.SYS_SENDTO, "f", []unix.Errno{unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.ENOMEM}},
	"sendmsg":    {unix.SYS_SENDMSG, "f", []unix.Errno{unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.ENOMEM}},
	"recvfrom":   {unix.SYS_RECVFROM, "f", []unix.Errno{unix.EINTR, unix.ENOMEM, unix.ENOBUFS}},
	"recvmsg":    {unix.SYS_RECVMSG, "f", []unix.Errno{unix.EINTR, unix.ENOMEM, unix.ENOBUFS}},

	// processes
	"rt_sigtimedwait":   {unix.SYS_RT_SIGTIMEDWAIT, "", []unix.Errno{unix.EINTR}},
	"clone":             {unix.SYS_CLONE, "", []unix.Errno{unix.EAGAIN, unix.ENOMEM}},
	"clone3":            {unix.SYS_CLONE3, "", []unix.Errno{unix.EAGAIN, unix.ENOMEM, unix.EPERM, unix.ENOSYS}},
	"mmap":              {unix.SYS_MMAP, "", []unix.Errno{unix.ENOMEM, unix.EAGAIN}},
	"execve":            {unix.SYS_EXECVE, "p", and(opens, unix.EACCES, unix.ETXTBSY, unix.EIO, unix.EAGAIN)},
	"execveat":          {unix.SYS_EXECVEAT, "fp", and(opens, unix.EACCES, unix.ETXTBSY, unix.EIO, unix.EAGAIN)},
	"wait4":             {unix.SYS_WAIT4, "", []unix.Errno{unix.EINTR}},
	"waitid":            {unix.SYS_WAITID, "n", []unix.Errno{unix.EINTR}},
	"kill":              {unix.SYS_KILL, ".n", []unix.Errno{unix.EPERM}},
	"pidfd_open":        {unix.SYS_PIDFD_OPEN, "", opens},
	"pidfd_getfd":       {unix.SYS_PIDFD_GETFD, "", and(opens, unix.EPERM)},
	"pidfd_send_signal": {unix.SYS_PIDFD_SEND_SIGNAL, ".n", []unix.Errno{unix.EPERM}},
	"process_vm_readv":  {unix.SYS_PROCESS_VM_READV, "", []unix.Errno{unix.EPERM, unix.ENOMEM}},
	"setpgid":           {unix.SYS_SETPGID, "", []unix.Errno{unix.EPERM}},
	"setsid":            {unix.SYS_SETSID, "", []unix.Errno{unix.EPERM}},
	"setresuid":         {unix.SYS_SETRESUID, "", []unix.Errno{unix.EAGAIN, unix.EPERM}},
	"setresgid":         {unix.SYS_SETRESGID, "", []unix.Errno{unix.EPERM}},
	"setgroups":         {unix.SYS_SETGROUPS, "", []unix.Errno{unix.ENOMEM, unix.EPERM}},
	"capget":            {unix.SYS_CAPGET, "", []unix.Errno{unix.EPERM}},
	"capset":            {unix.SYS_CAPSET, "", []unix.Errno{unix.EPERM}},
	"prctl":             {unix.SYS_PRCTL, "n", []unix.Errno{unix.EPERM, unix.EINVAL}},
	"prlimit64":         {unix.SYS_PRLIMIT64, ".n", []unix.Errno{unix.EPERM}},
	"getrlimit":         {unix.SYS_GETRLIMIT, "n", []unix.Errno{unix.EPERM}},
}

var callNames = func() map[int]string {
	names := map[int]string{}
	for name, c := range calls {
		names[c.nr] = name
	}
	return names
}()

// faults lists how calls of this kind may fail.
func (k kind) faults() (all []fault) {
	errnos := calls[k.call].errnos
	isFile := strings.HasPrefix(k.what, "/") || strings.HasPrefix(k.what, "{dir}")
	switch words := strings.Fields(k.what); {
	case k.call == "fcntl" && len(words) == 2:
		errnos = fcntlErrnos[words[1]]
	case strings.HasPrefix(k.call, "p") && isFile && (k.call == "pread64" || k.call == "pwrite64"), isFile &&
		(k.call == "read" || k.call == "write"):
		errnos = append(slices.Clone(errnos), unix.EIO)
		if strings.HasSuffix(k.call, "write") || k.call == "pwrite64" {
			errnos = append(errnos, unix.ENOSPC)
		}
		all = append(all, fault{half: true})
	case k.call == "write" && k.what == "pipe":
		all = append(all, fault{half: true})
	}
	switch {
	case k.call == "epoll_ctl" && !strings.HasPrefix(k.what, strconv.Itoa(unix.EPOLL_CTL_ADD)+" "):
		return nil // nothing needs memory
	case strings.HasSuffix(k.what, "[eventfd]"):
		return nil // with it Go's poller wakes itself
	case k.call == "fstat" && k.what == "{dir}/p.pid":
		return nil // whose file it is cannot be told without this
	case (k.call == "unlinkat" || k.call == "flock") && strings.HasSuffix(k.what, ".lock"):
		return nil // it stays, and is used again
	}
	for _, e := range errnos {
		if e != unix.EINTR || k.who != "child" { // which has a handler for no signal
			all = append(all, fault{errno: e})
		}
	}
	return all
}

// fcntlErrnos are the errors of fcntl(2) by its command. The others fail for a wrong argument only.
var fcntlErrnos = map[string][]unix.Errno{
	strconv.Itoa(unix.F_DUPFD_CLOEXEC): {unix.EMFILE},
	strconv.Itoa(unix.F_DUPFD):         {unix.EMFILE},
	strconv.Itoa(unix.F_ADD_SEALS):     {unix.EBUSY, unix.EPERM},
	strconv.Itoa(unix.F_SETLK):         {unix.EINTR, unix.ENOLCK},
	strconv.Itoa(unix.F_OFD_SETLK):     {unix.EINTR, unix.ENOLCK},
	strconv.Itoa(unix.F_SETFL):         {unix.EPERM},
	strconv.Itoa(unix.F_SETPIPE_SZ):    {unix.EPERM, unix.ENOMEM},
}

// kind says what a call is and what its arguments mean.
func (s *seam) kind(who string, q *question) kind {
	name, known := callNames[int(q.nr)]
	if !known {
		return kind{who, fmt.Sprintf("call number %d", q.nr), ""}
	}
	var words []string
	for i, letter := range calls[name].arguments {
		switch a := q.args[i]; letter {
		case 'p':
			words = append(words, s.general(readString(int(q.pid), uintptr(a))))
		case 'f':
			words = append(words, s.descriptor(int(q.pid), int(int32(a))))
		case 'n':
			words = append(words, strconv.FormatInt(int64(int32(a)), 10))
		}
	}
	return kind{who, name, strings.Join(words, " ")}
}

// descriptor says what a descriptor of a process leads to.
func (s *seam) descriptor(pid, fd int) string {
	to, err := os.Readlink(proc.Path(pid, "fd/"+strconv.Itoa(fd)))
	if err != nil {
		return "nothing"
	}
	if !strings.HasPrefix(to, "anon_inode") {
		to, _, _ = strings.Cut(to, ":[")
	}
	return s.general(strings.ReplaceAll(to, " (deleted)", ""))
}

var variable = regexp.MustCompile(`[0-9a-f]{16}|[A-Z2-7]{12,}|notify\.[a-z0-9]+|[0-9]+`)

// general replaces in a name what is different each time.
func (s *seam) general(name string) string {
	return variable.ReplaceAllString(strings.ReplaceAll(name, s.dir, "{dir}"), "*")
}

// readString reads a string that ends with NUL from the memory of a process.
func readString(pid int, at uintptr) string {
	text := make([]byte, 4096-at%4096)
	n, _ := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &text[0], Len: uint64(len(text))}},
		[]unix.RemoteIovec{{Base: at, Len: len(text)}}, 0)
	before, _, _ := bytes.Cut(text[:max(n, 0)], []byte{0})
	return string(before)
}

// halve reads or writes half of what a call asks for, in its place. The descriptor is read or written through /proc,
// which shares no offset with the process, or through a copy of the descriptor, which does.
func (s *seam) halve(q *question) answer {
	fd, err := copyDescriptor(int(q.pid), int(int32(q.args[0])))
	if err != nil {
		return answer{errno: -int32(unix.EINTR)}
	}
	defer unix.Close(fd)
	data := make([]byte, (q.args[2]+1)/2)
	if len(data) == 0 {
		return answer{flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	}
	local := []unix.Iovec{{Base: &data[0], Len: uint64(len(data))}}
	remote := []unix.RemoteIovec{{Base: uintptr(q.args[1]), Len: len(data)}}
	n := 0
	switch callNames[int(q.nr)] {
	case "write", "pwrite64":
		if n, err = unix.ProcessVMReadv(int(q.pid), local, remote, 0); err != nil {
			break
		}
		if int(q.nr) == unix.SYS_WRITE {
			n, err = unix.Write(fd, data[:n])
		} else {
			n, err = unix.Pwrite(fd, data[:n], int64(q.args[3]))
		}
	case "read":
		if n, err = unix.Read(fd, data); n > 0 {
			local[0].Len, remote[0].Len = uint64(n), n
			_, err = unix.ProcessVMWritev(int(q.pid), local, remote, 0)
		}
	case "pread64":
		if n, err = unix.Pread(fd, data, int64(q.args[3])); n > 0 {
			local[0].Len, remote[0].Len = uint64(n), n
			_, err = unix.ProcessVMWritev(int(q.pid), local, remote, 0)
		}
	}
	if err != nil {
		return answer{errno: -int32(unix.EINTR)}
	}
	return answer{value: int64(n)}
}

// copyDescriptor copies a descriptor of the process that a thread belongs to.
func copyDescriptor(thread, fd int) (int, error) {
	pidfd, err := unix.PidfdOpen(group(thread), 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	return unix.PidfdGetfd(pidfd, fd, 0)
}

// sitesOfAKind is how many calls of one kind count, spread over all of them: a start reads the environment of every
// process.
const sitesOfAKind = 6

// sites lists every call that was counted, and unknown those that this package knows nothing about.
func (s *seam) sites() (all []site, unknown []kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range s.counts {
		if _, known := calls[k.call]; !known {
			unknown = append(unknown, k)
		}
		first := 1
		if k.call == "epoll_create1" {
			first = 2 // Go's own poller, without which nothing works
		}
		for i := first; i <= n; i += 1 + (n-first)/sitesOfAKind {
			all = append(all, site{k, i})
		}
	}
	slices.SortFunc(all, func(a, b site) int {
		return cmp.Or(strings.Compare(fmt.Sprint(a.kind), fmt.Sprint(b.kind)), a.ordinal-b.ordinal)
	})
	return all, unknown
}

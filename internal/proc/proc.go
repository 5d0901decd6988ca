// Package proc reads what the kernel says about processes in /proc, and what the user database says about users and groups.
//
// It is the module's only reader of these files. Functions that take a PID say nothing about PID reuse: hold a pidfd and check with
// Exists after the read where the answer must be about one particular process. Some files (environ, cmdline, smaps_rollup, …) are made
// of the memory of the process, which can delay the reader for as long as it likes: read them through foreign.Looks when the
// process may be hostile.
//
// prometheus/procfs is not used: it compiles regular expressions when it is loaded, which every start of a worker would pay for, and
// it has no children, descriptors by link, pidfds or accounts.
package proc

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Path returns the path of a file in the directory of a process: Path(7, "stat") is /proc/7/stat.
func Path(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }

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

// Name returns the command name of a process (proc_pid_comm(5)), or "". The process chooses it, so it may contain anything.
func Name(pid int) string {
	name, _ := os.ReadFile(Path(pid, "comm"))
	return strings.TrimSuffix(string(name), "\n")
}

// Status returns the lines of /proc/PID/status by name, without the colon (proc_pid_status(5)).
func Status(pid int) (map[string]string, error) {
	text, err := os.ReadFile(Path(pid, "status"))
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

// Environ returns the environment that a process was started with. It can be delayed by the process: see the package comment.
func Environ(pid int) (map[string]string, error) {
	text, err := os.ReadFile(Path(pid, "environ"))
	return ParseEnviron(text), err
}

// ParseEnviron reads the content of /proc/PID/environ. Of two variables with one name the first counts, as with getenv(3).
func ParseEnviron(text []byte) map[string]string {
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
func Descriptors(pid int) (map[int]string, error) {
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

// Gone reports whether err says that a process, or a file in its directory, no longer exists.
func Gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

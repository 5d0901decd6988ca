package output

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// logPlace is where the path of a log file leads: a name in an open directory.
type logPlace struct {
	dir    int
	name   string
	magic  bool        // the name is a link of procfs, such as /proc/self/fd/1, which only the kernel can follow
	folder unix.Stat_t // of dir
}

func (p *logPlace) close() { unix.Close(p.dir) }

// The flags of a log file. Opening one never waits for the reader of a FIFO.
const (
	logFlags    = unix.O_APPEND | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	newLogFlags = logFlags | unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW
	newLogMode  = 0o640
)

// owners are the users who may own what is on the path of a log file: root, supervisord's own user, and the worker's.
type owners struct{ worker int }

func ours(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

func (o owners) known(uid uint32) bool { return ours(uid) || int(uid) == o.worker }

// shared reports whether users other than root and supervisord's own can create and rename files in a directory.
func shared(folder *unix.Stat_t) bool { return !ours(folder.Uid) || folder.Mode&0o022 != 0 }

// sticky reports whether every user can create files in a directory, as in /tmp.
func sticky(folder *unix.Stat_t) bool {
	return folder.Mode&unix.S_ISVTX != 0 && folder.Mode&0o022 != 0
}

const mostLinks = 40

// findLog follows path to the directory of its last component, which need not exist. A user who can write to a
// directory on the way could lead root to another file. So findLog follows only symbolic links of root and of
// supervisord's user, and in a directory like /tmp it enters only what belongs to them or to the worker's user.
func (o owners) findLog(path string) (logPlace, error) {
	dir, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return logPlace{}, err
	}
	p := logPlace{dir: dir}
	if err := o.walk(&p, components(path)); err != nil {
		p.close()
		return logPlace{}, err
	}
	return p, nil
}

// walk follows names, and those of the links on the way, from p.dir. It leaves p at the last one, or at the first that
// only the kernel can follow (magic).
func (o owners) walk(p *logPlace, names []string) error {
	for links := 0; len(names) > 0; {
		p.name, names = names[0], names[1:]
		if err := unix.Fstat(p.dir, &p.folder); err != nil {
			return err
		}
		target, err := o.enter(p, len(names) == 0)
		if err != nil || p.magic {
			return err
		}
		if target == "" {
			continue
		}
		if links++; links > mostLinks {
			return unix.ELOOP
		}
		names = append(components(target), names...)
	}
	return nil
}

// components splits a path; "/" comes first in an absolute one, and leads back to the root also in the middle of a
// link.
func components(path string) []string {
	var names []string
	if strings.HasPrefix(path, "/") {
		names = []string{"/"}
	}
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

// enter moves p into the directory p.name, unless the name is the last one or a symbolic link, whose target it returns.
func (o owners) enter(p *logPlace, last bool) (target string, err error) {
	fd, err := unix.Openat(p.dir, p.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if last && errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		defer unix.Close(fd)
		return p.follow(fd, &st, last)
	}
	if err == nil && p.name != "/" && p.name != ".." {
		err = o.checkOwner(p, &st)
	}
	if err != nil || last {
		unix.Close(fd)
		return "", err
	}
	unix.Close(p.dir)
	p.dir = fd
	return "", nil
}

// follow returns the target of the symbolic link behind fd.
func (p *logPlace) follow(fd int, st *unix.Stat_t, last bool) (string, error) {
	if !ours(st.Uid) {
		return "", &foreignError{p.name, fmt.Sprintf("is a symbolic link of another user (UID %d)", st.Uid),
			"replace the link with a file or folder, or give it to root with chown -h"}
	}
	if st.Nlink > 1 && shared(&p.folder) {
		return "", &foreignError{p.name, "is a symbolic link with a second name, in a folder that another user can write to",
			"remove it"}
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err == nil && last && fs.Type == unix.PROC_SUPER_MAGIC {
		p.magic = true
		return "", nil
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err == nil && n == 0 {
		err = unix.ENOENT
	}
	return string(target[:max(n, 0)]), err
}

// foreignError says that another user may have put something on the path of a log file.
type foreignError struct{ name, what, remedy string }

func (e *foreignError) Error() string { return e.name + " " + e.what + ": " + e.remedy }

// openAt opens what p leads to for appending, and creates it with mode 0640 if it is missing. It opens the file that it
// has checked by its descriptor: another file may have the name by then. A FIFO is opened for reading, too: it then
// needs no reader, and keeps what was written while it has none.
func (o owners) openAt(p *logPlace, st *unix.Stat_t) (int, error) {
	fd, err := p.look()
	if errors.Is(err, unix.ENOENT) && !p.magic {
		if fd, err = p.create(st); !errors.Is(err, unix.EEXIST) {
			return fd, err
		}
		fd, err = p.look() // another process was faster
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, st); err != nil {
		return -1, err
	}
	if err := o.check(p, st); err != nil {
		return -1, err
	}
	again := fmt.Sprintf("/proc/thread-self/fd/%d", fd)
	if st.Mode&unix.S_IFMT == unix.S_IFIFO {
		if fd, err := unix.Open(again, unix.O_RDWR|logFlags, 0); err == nil {
			return fd, nil
		}
	}
	return unix.Open(again, unix.O_WRONLY|logFlags, 0)
}

// look returns an O_PATH descriptor of the file.
func (p *logPlace) look() (int, error) {
	flags := unix.O_PATH | unix.O_CLOEXEC
	if !p.magic {
		flags |= unix.O_NOFOLLOW
	}
	return unix.Openat(p.dir, p.name, flags, 0)
}

// create makes a new file, or fails with EEXIST.
func (p *logPlace) create(st *unix.Stat_t) (int, error) {
	fd, err := unix.Openat(p.dir, p.name, newLogFlags, newLogMode)
	if err != nil {
		return -1, err
	}
	if err := unix.Fstat(fd, st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// check refuses a file that another user may have put in the place of the log.
func (o owners) check(p *logPlace, st *unix.Stat_t) error {
	switch kind := st.Mode & unix.S_IFMT; {
	case p.magic:
		return nil
	case kind == unix.S_IFLNK: // it was not there before
		return unix.ELOOP
	case kind == unix.S_IFREG && st.Nlink > 1 && ours(st.Uid) && shared(&p.folder):
		return &foreignError{p.name, "is a hard link to a file that has another name, in a folder that another user can " +
			"write to", "remove it"}
	}
	return o.checkOwner(p, st)
}

// checkOwner refuses what another user has put into a directory in which every user can create files.
func (o owners) checkOwner(p *logPlace, st *unix.Stat_t) error {
	if !sticky(&p.folder) || o.known(st.Uid) {
		return nil
	}
	return &foreignError{p.name, fmt.Sprintf("belongs to another user (UID %d), in a folder that everybody can write to",
		st.Uid), "remove it, or choose another folder"}
}

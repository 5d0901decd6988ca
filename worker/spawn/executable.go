package spawn

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/apart"
)

// Executable is what a command was at one time. As long as it is open, a process of it executes that very file, also when the path names
// another one by then, or none. FD and Detach may be called for nil.
type Executable struct {
	Files []File   // what the kernel reads for the command: a script, its interpreter, …; the last one is what it executes
	Argv  []string // in the place of argv[0], if the first file is a script: its interpreter with its argument, and the script
	Why   string   // why processes are executed by the path in any case; "": they are not

	file *os.File // the last one, by O_PATH: on some file systems the close of any other descriptor waits for a server
}

// File is a file as it was found.
type File struct {
	Path   string // absolute, unless the directory of the command was not
	Device uint64
	Inode  uint64
	Size   uint64
	Time   int64 // of the last modification, Unix time in nanoseconds
}

// maxScripts is how many interpreters that are scripts Linux follows.
const maxScripts = 5

// Find opens the file that the command of c names now, looked up as a process would, and for a script its interpreter. It may wait for a
// file system. The caller must Detach and close it. Errors are about the file; what only a process with its user can know is not looked at.
func Find(c *Execution) (*Executable, error) {
	files, path := c.candidates()
	for _, name := range files {
		e := &Executable{}
		file, err := e.open(under(c.Directory, name))
		if err != nil && path != "" && !Scarce(err) {
			continue
		}
		if err == nil {
			err = e.follow(file, c.Directory, name)
		}
		if err != nil {
			return nil, err
		}
		return e, nil
	}
	return nil, fmt.Errorf("%s: not found in PATH %q: %w", c.Argv[0], path, unix.ENOENT)
}

// Scarce reports whether an error of Find is not about the file: there is no descriptor, or no memory, left.
func Scarce(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

func under(directory, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(directory, path)
}

// open opens a file that can be executed by somebody, and notes it.
func (e *Executable) open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	found, mode, err := examine(fd, "", path)
	if err == nil && (mode&unix.S_IFMT != unix.S_IFREG || mode&0o111 == 0) {
		err = fmt.Errorf("%s: %w", path, unix.EACCES)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	e.Files = append(e.Files, found)
	return file, nil
}

// follow finds out what the kernel would execute for a file: see binfmt_script and binfmt_elf in Linux. name is the file in argv.
func (e *Executable) follow(file *os.File, directory, name string) error {
	for range maxScripts {
		head, err := readHead(int(file.Fd()))
		interpreter, argument, why := kind(head)
		if err == nil && interpreter == "" && why == "" {
			e.file = file
			return nil
		}
		file.Close()
		switch {
		case errors.Is(err, os.ErrPermission):
			why = "it cannot be read: " + err.Error()
		case err != nil:
			return fmt.Errorf("%s: cannot be read: %w", e.last().Path, err)
		}
		if why != "" {
			e.Why, e.Argv = why, nil
			return nil
		}
		if e.Argv == nil {
			e.Argv = []string{name}
		}
		if argument != "" {
			e.Argv = append([]string{argument}, e.Argv...)
		}
		e.Argv = append([]string{interpreter}, e.Argv...)
		if file, err = e.open(under(directory, interpreter)); err != nil {
			return err
		}
	}
	file.Close()
	return fmt.Errorf("%s: %w", name, unix.ELOOP)
}

// headSize is how much of a file Linux reads to find out what it is.
const headSize = 256

// machines are the e_machine of programs that this machine executes by itself, by GOARCH.
var machines = map[string]byte{"amd64": 62, "arm64": 183}

// kind returns the interpreter of a script that begins with head, with its argument; "": the file is a program. why says that it can only be
// executed by its path.
func kind(head []byte) (interpreter, argument, why string) {
	script, is := bytes.CutPrefix(head, []byte("#!"))
	switch {
	case is:
		line, _, whole := bytes.Cut(script, []byte("\n"))
		interpreter = strings.Trim(string(line), " \t")
		if at := strings.IndexAny(interpreter, " \t"); at >= 0 {
			interpreter, argument = interpreter[:at], strings.TrimLeft(interpreter[at:], " \t")
		}
		if interpreter == "" || !whole && len(head) == headSize {
			return "", "", "its #! line is too long, or empty"
		}
		return interpreter, argument, ""
	case len(head) < 20, !bytes.HasPrefix(head, []byte("\x7fELF\x02")), head[18] != machines[runtime.GOARCH], head[19] != 0:
		return "", "", "it is neither a script nor a program for this machine, so that something else executes it (binfmt_misc)"
	}
	return "", "", ""
}

// readHead reads the beginning of the file behind fd. A server that hangs must not hold up forks meanwhile: see package apart.
func readHead(fd int) ([]byte, error) {
	head, done := make([]byte, headSize), make(chan error)
	go func() {
		var err error
		if apart.Needed(fd) {
			err = apart.Begin()
		}
		var file *os.File
		if err == nil {
			file, err = os.Open("/proc/self/fd/" + strconv.Itoa(fd))
		}
		if err == nil {
			var n int
			n, err = io.ReadFull(file, head)
			head = head[:n]
			file.Close()
		}
		done <- err
	}()
	switch err := <-done; {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return head, nil
	default:
		return nil, cmp.Or(errors.Unwrap(err), err)
	}
}

// examine looks at a file. name is what it is called.
func examine(dir int, path, name string) (f File, mode uint16, err error) {
	var st unix.Statx_t
	const want = unix.STATX_BASIC_STATS
	if err := unix.Statx(dir, path, unix.AT_EMPTY_PATH, want, &st); err != nil {
		return f, 0, fmt.Errorf("%s: %w", name, err)
	}
	time := st.Mtime.Sec*1e9 + int64(st.Mtime.Nsec)
	return File{Path: name, Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino, Size: st.Size, Time: time}, st.Mode, nil
}

// Change is what has become of a file; "": its path names it, as it was.
type Change string

// What may become of a file.
const (
	Removed  Change = "removed"
	Replaced Change = "replaced" // the path names another file
	Written  Change = "written"  // the file has another content, or as good as: another size or time
)

// Change looks at what the path of a file names now. It may wait for a file system. What it cannot see is not a change.
func (f File) Change() Change {
	now, _, err := examine(unix.AT_FDCWD, f.Path, f.Path)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return Removed
	case err != nil:
		return ""
	case now.Device != f.Device || now.Inode != f.Inode:
		return Replaced
	case now != f:
		return Written
	}
	return ""
}

// Adopt continues with a descriptor that another image had of the file, and takes it over; -1: none came.
func (e *Executable) Adopt(fd int) error {
	if fd < 0 {
		return errors.New("its descriptor was not handed over")
	}
	last := e.last()
	file := os.NewFile(uintptr(fd), last.Path)
	if now, _, err := examine(fd, "", last.Path); err != nil || now.Device != last.Device || now.Inode != last.Inode {
		file.Close()
		return errors.New("the descriptor that was handed over is of another file")
	}
	e.file = file
	return nil
}

func (e *Executable) last() *File { return &e.Files[len(e.Files)-1] }

// FD returns the descriptor; -1: there is none.
func (e *Executable) FD() int {
	if e == nil || e.file == nil {
		return -1
	}
	return int(e.file.Fd())
}

// Detach takes the descriptor out, for the caller to Close, which may wait for a disk if this was the last hold on the file. nil: there is
// none.
func (e *Executable) Detach() (file *os.File) {
	if e != nil {
		file, e.file = e.file, nil
	}
	return file
}

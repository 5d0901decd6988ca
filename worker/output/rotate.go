package output

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
)

// Rotation works on names in an open directory, and never follows a link there: the directory may belong to the
// worker's user, who could otherwise make root write to any file.

// rotatedTime is the time in the name of a rotated file: web.log becomes web-2026-01-31T12-00-00.000-size.log.
const rotatedTime = "2006-01-02T15-04-05.000"

// Suffixes of a compressed file, and of one that is being compressed.
const (
	compressed = ".gz"
	unfinished = ".gz.tmp"
)

// rotateRetry is how long a file that could not be rotated grows before the next try.
const rotateRetry = time.Minute

// due returns why the file must be rotated before so many bytes more: "size" or "time"; "": it need not be.
func (k *fileSink) due(more int, now time.Time) string {
	s, file := k.spec, k.file
	switch {
	case s.MaxSize == 0 || now.Before(k.retry):
	case file.size == 0:
		file.opened = now
	case file.size+int64(more) > s.MaxSize:
		return "size"
	case s.MaxAge > 0 && now.Sub(file.opened) >= s.MaxAge:
		return "time"
	}
	return ""
}

// rotate renames the file and continues with a new one. If that fails, the old one stays in use, so that no line is
// lost.
func (k *fileSink) rotate(why string) {
	if err := k.rotated(why); err != nil {
		if k.retry.IsZero() {
			k.errors.report("cannot rotate log file; it grows", err)
		}
		k.retry = time.Now().Add(rotateRetry)
		return
	}
	k.retry = time.Time{}
}

func (k *fileSink) rotated(why string) error {
	p, err := owners{k.spec.Owner}.findLog(k.spec.Path)
	if err != nil {
		return err
	}
	defer p.close()
	old, err := stat(k.file.File)
	if err != nil {
		return err
	}
	if !p.is(old) { // it was rotated externally
		return k.open()
	}
	if err := unix.Renameat(p.dir, p.name, p.dir, k.spec.rotatedName(&p, why, time.Now())); err != nil {
		return fmt.Errorf("cannot rename %s: %w", k.spec.Path, err)
	}
	var st unix.Stat_t
	fd, err := p.create(&st)
	if err != nil {
		return k.open()
	}
	likeness(fd, old)
	k.use(&openLog{File: os.NewFile(uintptr(fd), k.spec.Path), opened: time.Now()})
	return nil
}

func stat(file *os.File) (*syscall.Stat_t, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return info.Sys().(*syscall.Stat_t), nil
}

// is reports whether the name belongs to this file.
func (p *logPlace) is(file *syscall.Stat_t) bool {
	var st unix.Stat_t
	err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Dev == file.Dev && st.Ino == file.Ino
}

// likeness gives a new file the owner, group and mode of the one before, as far as that is allowed.
func likeness(fd int, old *syscall.Stat_t) {
	unix.Fchown(fd, int(old.Uid), int(old.Gid)) //nolint:errcheck // only root may give files away
	unix.Fchmod(fd, old.Mode&0o666)             //nolint:errcheck // it has the usual mode
}

// around returns how the names of rotated files begin and end.
func (s LogFileSpec) around() (prefix, extension string) {
	base := filepath.Base(s.Path)
	extension = filepath.Ext(base)
	return strings.TrimSuffix(base, extension) + "-", extension
}

// rotatedName returns an unused name.
func (s LogFileSpec) rotatedName(p *logPlace, why string, now time.Time) string {
	prefix, extension := s.around()
	for {
		name := prefix + now.UTC().Format(rotatedTime) + "-" + why + extension
		var st unix.Stat_t
		if err := unix.Fstatat(p.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return name
		}
		now = now.Add(time.Millisecond)
	}
}

// rotatedBefore reads the time in the name of a rotated file, given without the suffixes of compression.
func (s LogFileSpec) rotatedBefore(name string) (when string, ok bool) {
	prefix, extension := s.around()
	rest, has := strings.CutPrefix(name, prefix)
	rest, has2 := strings.CutSuffix(rest, extension)
	end := strings.LastIndexByte(rest, '-')
	if !has || !has2 || end < 0 || rest[end+1:] != "size" && rest[end+1:] != "time" {
		return "", false
	}
	_, err := time.Parse(rotatedTime, rest[:end])
	return rest[:end], err == nil
}

// tidier compresses and removes rotated files, in its own goroutine.
type tidier struct {
	wake, stop, done chan struct{}
}

// tidy starts to compress and remove rotated files. It does not wait.
func (k *fileSink) tidy() {
	if k.spec.MaxSize == 0 || k.spec.MaxFiles == 0 && !k.spec.Compress {
		return
	}
	if k.tidier == nil {
		k.tidier = &tidier{wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
		go k.tidier.run(k.spec, k.errors, k.apart)
	}
	select {
	case k.tidier.wake <- struct{}{}:
	default:
	}
}

// end stops the tidier, in the middle of a file if need be: the next one begins that file again.
func (d *tidier) end() {
	if d != nil {
		close(d.stop)
		<-d.done
	}
}

func (d *tidier) run(s LogFileSpec, e *LogErrors, alone bool) {
	defer close(d.done)
	if alone && foreign.StandApart() != nil {
		return
	}
	failing := false
	for {
		select {
		case <-d.stop:
			return
		case <-d.wake:
		}
		err := s.tidy(d.stop)
		if err != nil && !failing && !errors.Is(err, errStopped) {
			e.report("cannot tidy rotated log files", err)
		}
		failing = err != nil
	}
}

// rotatedFile is a rotated file in all its forms.
type rotatedFile struct {
	name  string // as it was rotated
	when  string
	forms []string // existing names: the file, compressed, half compressed
}

// tidy removes the oldest files beyond MaxFiles, and compresses the rest.
func (s LogFileSpec) tidy(stop <-chan struct{}) error {
	p, err := owners{s.Owner}.findLog(s.Path)
	if err != nil {
		return err
	}
	defer p.close()
	files, err := s.rotatedFiles(&p)
	if err != nil {
		return err
	}
	var errs []error
	for i, f := range files {
		switch {
		case s.MaxFiles > 0 && i >= s.MaxFiles:
			for _, name := range f.forms {
				errs = append(errs, p.remove(name))
			}
		case s.Compress && slices.Contains(f.forms, f.name):
			errs = append(errs, p.compress(f.name, stop))
		}
	}
	return errors.Join(errs...)
}

// rotatedFiles lists the rotated files, newest first.
func (s LogFileSpec) rotatedFiles(p *logPlace) ([]*rotatedFile, error) {
	fd, err := unix.Openat(p.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", filepath.Dir(s.Path), err)
	}
	folder := os.NewFile(uintptr(fd), filepath.Dir(s.Path))
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	found := map[string]*rotatedFile{}
	for _, name := range names {
		plain := strings.TrimSuffix(strings.TrimSuffix(name, unfinished), compressed)
		when, ok := s.rotatedBefore(plain)
		if !ok {
			continue
		}
		if found[plain] == nil {
			found[plain] = &rotatedFile{name: plain, when: when}
		}
		found[plain].forms = append(found[plain].forms, name)
	}
	files := make([]*rotatedFile, 0, len(found))
	for _, f := range found {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a,
		b *rotatedFile) int {
		return cmp.Or(cmp.Compare(b.when, a.when), cmp.Compare(b.name, a.name))
	})
	return files, err
}

func (p *logPlace) remove(name string) error {
	if err := unix.Unlinkat(p.dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove %s: %w", name, err)
	}
	return nil
}

var errStopped = errors.New("stopped")

// compress replaces a rotated file with a compressed one.
func (p *logPlace) compress(name string, stop <-chan struct{}) error {
	from, st, err := p.openRotated(name)
	if err != nil {
		return fmt.Errorf("cannot compress %s: %w", name, err)
	}
	defer from.Close()
	if err := p.remove(name + unfinished); err != nil {
		return err
	}
	fd, err := unix.Openat(p.dir, name+unfinished, newLogFlags, 0o600)
	if err != nil {
		return fmt.Errorf("cannot compress %s: %w", name, err)
	}
	to := os.NewFile(uintptr(fd), name+unfinished)
	err = squeeze(to, from, stop)
	if err == nil {
		likeness(fd, st)
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err == nil {
		err = unix.Renameat(p.dir, name+unfinished, p.dir, name+compressed)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot compress %s: %w", name, err), p.remove(name+unfinished))
	}
	return p.remove(name)
}

// openRotated opens a rotated file, but nothing that another user put in its place: a file of root under a second name
// would become readable.
func (p *logPlace) openRotated(name string) (*os.File, *syscall.Stat_t, error) {
	fd, err := unix.Openat(p.dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	st, err := stat(file)
	if err == nil && (st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Nlink != 1) {
		err = errors.New("it is not a regular file with one name")
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, st, nil
}

// squeeze compresses from into to, until stop is closed.
func squeeze(to io.Writer, from io.Reader, stop <-chan struct{}) error {
	z := gzip.NewWriter(to)
	if _, err := io.Copy(z, stoppable{from, stop}); err != nil {
		return err
	}
	return z.Close()
}

// stoppable is a reader that fails with errStopped when stop is closed.
type stoppable struct {
	io.Reader
	stop <-chan struct{}
}

func (r stoppable) Read(b []byte) (int, error) {
	select {
	case <-r.stop:
		return 0, errStopped
	default:
		return r.Reader.Read(b)
	}
}

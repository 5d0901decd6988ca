package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/apart"
)

// statusFiles keeps the status_file of every program as the program is. A disk that hangs must not hold the loop, nor the file of
// another program: each path has a goroutine that writes, and what it has not come to yet is overtaken by what is newer.
type statusFiles struct {
	log     *zap.Logger
	running *sync.WaitGroup
	told    map[string]string // what was last asked for, by path
	writers map[string]chan statusFile
	pending atomic.Int64 // what is asked for and not done yet
}

// statusFile is how a file is to be.
type statusFile struct {
	text   string
	wanted bool // false: it is to be removed
}

// want asks for these files, and for the others that were written to be removed.
func (f *statusFiles) want(want map[string]string) {
	for path, text := range want {
		if old, told := f.told[path]; !told || old != text {
			f.ask(path, statusFile{text, true})
		}
	}
	for path := range f.told {
		if _, wanted := want[path]; !wanted {
			f.ask(path, statusFile{})
		}
	}
	f.told = want
}

func (f *statusFiles) ask(path string, want statusFile) {
	next := f.writers[path]
	if next == nil {
		next = make(chan statusFile, 1)
		f.writers[path] = next
		f.running.Go(func() { f.keep(path, next) })
	}
	f.pending.Add(1)
	select {
	case <-next:
		f.pending.Add(-1)
	default:
	}
	next <- want
}

// end removes the files that this supervisor has written.
func (f *statusFiles) end() {
	f.want(map[string]string{})
	for _, next := range f.writers {
		close(next)
	}
}

// keep makes a file what is wanted, as often as that changes. One that it has not written it never removes.
func (f *statusFiles) keep(path string, next <-chan statusFile) {
	if err := standApart(path); err != nil {
		f.log.Error("a status file that hangs may hold up the start of workers", zap.Error(err))
	}
	var written *string
	for want := range next {
		written = f.make(path, written, want)
		f.pending.Add(-1)
	}
}

// standApart gives the calling goroutine a thread of its own if the file system of path needs that.
func standApart(path string) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // to write the file will fail, too
	}
	needed := apart.Needed(dir)
	unix.Close(dir)
	if !needed {
		return nil
	}
	return apart.Begin()
}

// make makes a file what is wanted, and returns what was written to it last; nil: nothing, or it is removed.
func (f *statusFiles) make(path string, written *string, want statusFile) *string {
	switch {
	case written == nil && (!want.wanted || want.text == ""), want.wanted && written != nil && *written == want.text:
		return written
	case !want.wanted:
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			f.log.Error("cannot remove status file", zap.Error(err))
		}
		return nil
	}
	if err := writeStatus(path, want.text); err != nil {
		f.log.Error("cannot write status file", zap.Error(err))
		return written
	}
	return &want.text
}

// writeStatus replaces a file at once, so that a reader never sees half of it. What is no regular file is left alone.
func writeStatus(path, text string) error {
	if stat, err := os.Lstat(path); err == nil && !stat.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: it is left alone; choose another status_file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) //nolint:errcheck // the first error is the one to tell
	}
	return err
}

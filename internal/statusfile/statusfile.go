// Package statusfile keeps files current whose disk may hang.
package statusfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
)

// Files keeps the status_file of every program current. Each path has a goroutine that writes, so that a disk that
// hangs holds up neither the caller nor another file. A newer text replaces an older text that is not written yet.
// The methods are for one goroutine.
type Files struct {
	log     *zap.Logger
	running *sync.WaitGroup
	asked   map[string]string       // the last texts, by path
	writers map[string]chan *string // nil: remove the file
	pending atomic.Int64            // how many texts are not written yet
}

// New returns Files that log what goes wrong. Their goroutines are counted by running.
func New(log *zap.Logger, running *sync.WaitGroup) *Files {
	return &Files{log: log, running: running, writers: map[string]chan *string{}}
}

// Want asks for files with these texts, by path, and removes all other files that it has asked for before.
func (f *Files) Want(texts map[string]string) {
	for path, text := range texts {
		if old, asked := f.asked[path]; !asked || old != text {
			f.ask(path, &text)
		}
	}
	for path := range f.asked {
		if _, wanted := texts[path]; !wanted {
			f.ask(path, nil)
		}
	}
	f.asked = texts
}

func (f *Files) ask(path string, text *string) {
	next := f.writers[path]
	if next == nil {
		next = make(chan *string, 1)
		f.writers[path] = next
		f.running.Go(func() { f.write(path, next) })
	}
	f.pending.Add(1)
	select {
	case <-next:
		f.pending.Add(-1)
	default:
	}
	next <- text
}

// Close removes the files that were written, and ends. It does not wait for that.
func (f *Files) Close() {
	f.Want(nil)
	for _, next := range f.writers {
		close(next)
	}
}

// write writes one file, or removes it, as often as that changes. write removes only a file that it has written.
func (f *Files) write(path string, next <-chan *string) {
	if err := standApart(path); err != nil {
		f.log.Error("a status file that hangs may hold up the start of workers", zap.Error(err))
	}
	forget(path)
	var written *string // nil: there is no file
	for text := range next {
		switch {
		case text == nil && written != nil:
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				f.log.Error("cannot remove status file", zap.Error(err))
			}
			written = nil
		case text != nil && (written == nil && *text != "" || written != nil && *text != *written):
			if err := writeStatus(path, *text); err != nil {
				f.log.Error("cannot write status file", zap.Error(err))
				break
			}
			written = text
		}
		f.pending.Add(-1)
	}
}

// standApart gives the calling goroutine a thread of its own, if the file system of path needs that.
func standApart(path string) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // to write the file will fail, too
	}
	needed := foreign.MayHang(dir)
	unix.Close(dir)
	if !needed {
		return nil
	}
	return foreign.StandApart()
}

// temporary is the end of the name under which a status file is written before it replaces the one that is there. The
// name is always the same, so that the next supervisord finds what a killed one has left.
const temporary = ".supervisord-tmp"

// forget removes the temporary file of a supervisord that was killed while writing. unlink(2) never removes a
// directory.
func forget(path string) { unix.Unlink(path + temporary) } //nolint:errcheck // if it is there, writeStatus says why

// writeStatus replaces a file at once, so that a reader never sees half a text. Only a regular file is replaced.
func writeStatus(path, text string) error {
	if stat, err := os.Lstat(path); err == nil && !stat.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file, so supervisord leaves it alone: choose another status_file", path)
	}
	forget(path)
	// O_EXCL does not follow a symbolic link
	f, err := os.OpenFile(path+temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
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
		forget(path)
	}
	return err
}

// Hung returns an error while a file is being written.
func (f *Files) Hung() error {
	if f.pending.Load() > 0 {
		return errors.New("a status_file is on a disk or a file system that does not answer")
	}
	return nil
}

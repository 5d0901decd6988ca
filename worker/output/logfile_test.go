package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
	"example.org/supervisord/internal/spool"
)

// someLines are 1 KiB long.
func someLines(log *LogFile, n int) {
	line := []byte(strings.Repeat("x", 1023) + "\n")
	for range n {
		log.Put(line)
	}
}

func TestFIFONeedsNoReaderAndKeepsItsLinesForOne(t *testing.T) {
	said := new(complaints)
	log := opened(t, LogFileSpec{Path: unit.FIFO(t)}, said)
	someLines(log, 1000) // more than the pipe holds
	reader := must.Get(os.OpenFile(log.spec.Path, os.O_RDONLY, 0))(t)
	defer reader.Close()
	got := make(chan int64)
	go func() { n, _ := io.Copy(io.Discard, reader); got <- n }()
	if err := log.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := <-got; n != 1000<<10 {
		t.Errorf("%d bytes arrived", n)
	}
	said.nothing(t)
}

func TestLogThatIsNotReadCostsLinesAndNoTime(t *testing.T) {
	said := new(complaints)
	log := opened(t, LogFileSpec{Path: unit.FIFO(t)}, said)
	begin := time.Now()
	someLines(log, 3*spool.Size>>10)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the writer waited %s", took)
	}
	if lost := log.sink.errors.Lost(); lost < 8000 || lost > 8192 { // 12 MiB were written, the buffer holds 4 MiB
		t.Errorf("%d lines are lost", lost)
	}
	if got := said.all(); len(got) != 1 || !strings.Contains(got[0], "does not take lines as fast as they come") {
		t.Errorf("%q", got)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errors.New("no patience"))
	defer cancel()
	if err := log.Flush(ctx); err == nil ||
		!strings.Contains(err.Error(), log.spec.Path+" does not take what was written: no patience") {
		t.Errorf("%v", err)
	}
	if err := log.Close(ctx); err == nil || !strings.Contains(err.Error(), "may be lost: no patience") {
		t.Errorf("%v", err)
	}
	<-log.spool.Done() // nothing is left of it
	if lost := log.sink.errors.Lost(); lost < 12000 {
		t.Errorf("%d lines are lost at the end", lost)
	}
}

// hostility is a log directory in which another user has placed traps, and a secret file that must not be touched.
type hostility struct {
	*testing.T
	folder, secret string
}

const stranger2, owner2 = 12345, 12346 // users: an attacker, and the owner of the worker

func hostile(t *testing.T, mode os.FileMode, owner int) *hostility {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make files of other users")
	}
	dir := t.TempDir()
	h := &hostility{t, filepath.Join(dir, "logs"), filepath.Join(dir, "secret")}
	must.Do(t, errors.Join(os.Mkdir(h.folder, 0o700), os.Chown(h.folder, owner, owner), os.Chmod(h.folder, mode),
		os.WriteFile(h.secret, []byte("secret\n"), 0o600)))
	return h
}

func (h *hostility) path(name string) string { return filepath.Join(h.folder, name) }

// owns gives what was made in the directory to a user.
func (h *hostility) owns(uid int, name string, made error) {
	h.Helper()
	must.Do(h, errors.Join(made, os.Lchown(h.path(name), uid, uid)))
}

// untouched fails if the secret has changed.
func (h *hostility) untouched() {
	h.Helper()
	has(h.T, h.secret, "secret\n")
	info := must.Get(os.Stat(h.secret))(h)
	if st := info.Sys().(*syscall.Stat_t); info.Mode() != 0o600 || st.Uid != 0 {
		h.Errorf("the secret is %v, owner %d", info.Mode(), st.Uid)
	}
}

// opens opens a log file in the directory, or is refused because of this.
func (h *hostility) opens(name, refused string) {
	h.Helper()
	log, err := OpenLogFile(h.Context(), LogFileSpec{Path: h.path(name), Owner: owner2}, new(complaints).errors())
	if err == nil {
		log.Put([]byte("line\n"))
		must.Do(h, log.Close(h.Context()))
	}
	if (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
		h.Errorf("%s: %v, want %q", name, err, refused)
	}
	h.untouched()
}

func TestLogInADirectoryOfTheWorkersUserFollowsNoLink(t *testing.T) {
	h := hostile(t, 0o755, owner2)
	h.opens("new.log", "")
	h.owns(owner2, "own.log", os.WriteFile(h.path("own.log"), nil, 0o644))
	h.opens("own.log", "")
	h.owns(owner2, "link.log", os.Symlink(h.secret, h.path("link.log")))
	h.opens("link.log", fmt.Sprintf("link.log is a symbolic link of another user (UID %d): replace the link", owner2))
	h.owns(owner2, "d", os.Symlink(filepath.Dir(h.secret), h.path("d")))
	h.opens("d/secret", "d is a symbolic link of another user")
	h.owns(0, "roots.log", os.Symlink(h.path("new.log"), h.path("roots.log")))
	h.opens("roots.log", "")
	h.owns(0, "hard.log", os.Link(h.secret, h.path("hard.log")))
	h.opens("hard.log", "hard.log is a hard link")
}

func TestLogOfAStrangerInATemporaryDirectoryIsRefused(t *testing.T) {
	h := hostile(t, 0o777|os.ModeSticky, 0)
	h.opens("new.log", "")
	h.owns(owner2, "workers.log", os.WriteFile(h.path("workers.log"), nil, 0o666))
	h.opens("workers.log", "")
	h.owns(stranger2, "strangers.log", os.WriteFile(h.path("strangers.log"), nil, 0o666))
	h.opens("strangers.log", fmt.Sprintf(
		"strangers.log belongs to another user (UID %d), in a folder that everybody can write to", stranger2))
	h.owns(stranger2, "d", os.Mkdir(h.path("d"), 0o755))
	h.opens("d/log", "d belongs to another user")
	h.owns(stranger2, "link.log", os.Symlink(h.path("new.log"), h.path("link.log")))
	h.opens("link.log", "link.log is a symbolic link of another user")
}

func TestRootsLinksLeadToALog(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	must.Do(t, errors.Join(os.Mkdir(real, 0o755), os.Symlink("real", filepath.Join(dir, "link")),
		os.Symlink("../real/./one.log", filepath.Join(real, "two.log")), os.Symlink("loop",
			filepath.Join(dir, "loop"))))
	log := opened(t, LogFileSpec{Path: filepath.Join(dir, "link", "two.log")}, new(complaints))
	log.Put([]byte("line\n"))
	holds(t, log, "line\n")
	has(t, filepath.Join(real, "one.log"), "line\n")
	for path, want := range map[string]error{"loop": unix.ELOOP, "no/log": unix.ENOENT, "": unix.EISDIR,
		"real/one.log/x": unix.ENOTDIR} {
		if _, err := OpenLogFile(t.Context(), LogFileSpec{Path: filepath.Join(dir, path)},
			new(complaints).errors()); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestLogMayBeADescriptorOfTheSupervisor(t *testing.T) {
	read, write, err := os.Pipe()
	must.Do(t, err)
	defer read.Close()
	log := opened(t, LogFileSpec{Path: fmt.Sprintf("/dev/fd/%d", write.Fd())}, new(complaints))
	write.Close()
	log.Put([]byte("line\n"))
	line := make([]byte, 10)
	if n, err := read.Read(line); err != nil || string(line[:n]) != "line\n" {
		t.Errorf("%q, %v", line[:n], err)
	}
}

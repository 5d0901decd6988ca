package supervisor

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/worker/spawn"
)

// replace makes a new file of the command of a program.
func replace(t *testing.T, c *config.Program) (inode uint64) {
	t.Helper()
	path := filepath.Join(c.Directory, c.Command[0])
	program, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(path+".new", program[:4096], 0o755)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Stat(path, &st)
	}
	if err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// names checks that an executable is open, and which file it is.
func names(t *testing.T, e *spawn.Executable, inode uint64) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(e.FD(), &st); err != nil || st.Ino != inode {
		t.Errorf("descriptor %d is of inode %d (%v), want %d", e.FD(), st.Ino, err, inode)
	}
}

func TestGenerationHoldsItsExecutableUntilItIsGone(t *testing.T) {
	c := testProgram(t, "web")
	first := replace(t, c)
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		second := replace(t, c)
		s.workers()[0].crash()
		for len(s.workers()) == 1 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		executable := s.workers()[1].spec.Executable
		if executable != s.workers()[0].spec.Executable {
			t.Error("the replacement has another executable")
		}
		names(t, executable, first)
		s.workers()[1].ready()
		s.hup()
		s.count(3)
		names(t, s.workers()[2].spec.Executable, second)
		s.workers()[2].ready() // the first one drains
		names(t, executable, first)
		if s.stored("w.web.1.exe") != 1 || s.stored("w.web.2.exe") != 1 {
			t.Errorf("the store has %v", s.launcher.systemd.fakeStore)
		}
		fd := executable.FD()
		s.hup()
		s.workers()[3].ready()
		s.workers()[1].exit()
		if executable.FD() >= 0 || s.stored("w.web.1.exe") != 0 {
			t.Errorf("generation 1 is gone, and its executable is %d; the store has %v", executable.FD(), s.launcher.systemd.fakeStore)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && st.Ino == first {
			t.Error("its descriptor is still open")
		}
	}, c)
}

func (s *stage) stored(name string) int { return len(s.launcher.systemd.fakeStore[name]) }

func TestGenerationWithoutAnExecutableLeavesTheErrorToItsWorker(t *testing.T) {
	c := testProgram(t, "web")
	onStage(t, func(s *stage) {
		s.count(1)
		if e := s.workers()[0].spec.Executable; e != nil {
			t.Errorf("%+v", e)
		}
		replace(t, c)
		s.workers()[0].crash() // the next attempt is a generation of its own
		for len(s.workers()) == 1 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if e := s.workers()[1].spec.Executable; e.FD() < 0 {
			t.Errorf("%+v", e)
		}
	}, c)
}

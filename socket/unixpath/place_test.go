package unixpath

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/lab/unit"
)

func TestMain(m *testing.M) { leftover.Main(m) }

func TestPlaceThatCannotBeLookedAtIsNotSaidToBeReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := must.Get(OpenOwn(path, 0o600, -1))(t)
	t.Cleanup(func() { s.Close() })
	place := s.place
	look := unit.SystemCall{Number: unix.SYS_STATX, Argument: 2, Value: unix.AT_EMPTY_PATH | unix.AT_SYMLINK_NOFOLLOW}
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.EACCES} {
		var err error
		unit.Refusing(t, look, errno, func() { err = place.Note() })
		if want := "look at " + path + ": " + errno.Error(); !errors.Is(err, errno) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := place.Note(); err != nil {
		t.Errorf("it can be looked at: %v", err)
	}
	must.Do(t, errors.Join(os.Remove(path), os.WriteFile(place.link(), nil, 0o600)))
	if err := place.Note(); !errors.Is(err, unix.ESTALE) {
		t.Errorf("it was replaced: %v", err)
	}
}

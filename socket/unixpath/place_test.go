package unixpath

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
)

func TestMain(m *testing.M) { leftover.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refusingLooks calls f on a thread on which statx(2) of a descriptor fails with errno, seccomp(2). The thread ends
// with it.
func refusingLooks(t *testing.T, errno unix.Errno, f func()) {
	t.Helper()
	// the number of the call, and the lower half of its third argument, in struct seccomp_data
	const number, flags = 0, 16 + 2*8
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	program := []unix.SockFilter{
		load(number),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_STATX, Jf: 3},
		load(flags),
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.AT_EMPTY_PATH, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // for good
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
		}
		if err == nil {
			f()
		}
		ended <- err
	}()
	must(t, <-ended)
}

func TestPlaceThatCannotBeLookedAtIsNotSaidToBeReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := OpenOwn(path, 0o600, -1)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	place := s.place
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.EACCES} {
		var err error
		refusingLooks(t, errno, func() { err = place.Note() })
		if want := "look at " + path + ": " + errno.Error(); !errors.Is(err, errno) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := place.Note(); err != nil {
		t.Errorf("it can be looked at: %v", err)
	}
	must(t, errors.Join(os.Remove(path), os.WriteFile(place.link(), nil, 0o600)))
	if err := place.Note(); !errors.Is(err, unix.ESTALE) {
		t.Errorf("it was replaced: %v", err)
	}
}

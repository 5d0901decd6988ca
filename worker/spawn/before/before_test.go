package before

import (
	"syscall"
	"testing"
)

func TestFilesIsTheLimitBeforeGoRaisedIt(t *testing.T) {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	raised := Files.Soft < Files.Hard-1 && now.Cur == Files.Hard-1
	untouched := Files.Soft >= Files.Hard-1 && now.Cur == Files.Soft
	if Files.Hard == 0 || Files.Hard != now.Max || !raised && !untouched {
		t.Errorf("%+v at the start, %+v now", Files, now)
	}
}

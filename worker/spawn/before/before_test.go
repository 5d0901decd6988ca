package before

import (
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

func TestFilesIsTheLimitBeforeGoRaisedIt(t *testing.T) {
	var now syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now))
	raised := Files.Soft < Files.Hard-1 && now.Cur == Files.Hard-1
	untouched := Files.Soft >= Files.Hard-1 && now.Cur == Files.Soft
	if Files.Hard == 0 || Files.Hard != now.Max || !raised && !untouched {
		t.Errorf("%+v at the start, %+v now", Files, now)
	}
}

package config

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

// withoutResource takes CAP_SYS_RESOURCE from this thread until the test ends.
func withoutResource(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var before [2]unix.CapUserData
	must.Do(t, unix.Capget(&header, &before[0]))
	less := before
	less[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	must.Do(t, unix.Capset(&header, &less[0]))
	t.Cleanup(func() {
		if err := unix.Capset(&header, &before[0]); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

// limitWarnings returns the warnings about a limit of open files.
func limitWarnings(t *testing.T, nofile any) (got string) {
	t.Helper()
	for _, w := range load(t, fmt.Sprintf("[program.web]\ncommand = [\"true\"]\n[program.web.limits]\nnofile = %v\n",
		nofile)).Warnings {
		if strings.Contains(w.Key, "limits") {
			got += w.String()
		}
	}
	return got
}

func TestLimitAboveAHardOneThatMayNotBeRaisedIsAWarning(t *testing.T) {
	var have unix.Rlimit
	must.Do(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &have))
	refused := unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: have.Cur, Max: have.Max + 1}, nil)
	must.Do(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &have, nil))
	if got := limitWarnings(t, have.Max+1); (got != "") != (refused != nil) {
		t.Errorf("the kernel says %v, and check %q", refused, got)
	}
	withoutResource(t)
	for nofile, warns := range map[any]bool{uint64(1): false, have.Max: false, have.Max + 1: true, `"unlimited"`: true} {
		// no kernel has that for files
		got := limitWarnings(t, nofile)
		want := fmt.Sprintf("c.toml:4:1: warning: program.web.limits.nofile: is above the hard limit %d, which only "+
			"CAP_SYS_RESOURCE may raise, and this user does not have it: "+
			"no generation starts with it: write at most %[1]d, or start supervisord as root, or with a higher hard limit "+
			"(LimitNOFILE= in its unit)", have.Max)
		if strings.HasSuffix(got, want) != warns || !warns && got != "" {
			t.Errorf("nofile = %v: %q, want a warning: %v", nofile, got, warns)
		}
	}
}

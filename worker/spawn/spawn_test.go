package spawn

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/proc"
)

// forked is a process that was forked.
type forked struct{ pid, pidfd, report int }

func fork(c *Execution, group int) (*forked, *StepError) {
	l, failure := Prepare(c)
	if failure != nil {
		return nil, failure
	}
	defer l.Close()
	pid, pidfd, failure := l.Fork(group)
	if failure != nil {
		unix.Close(l.Report)
		return nil, failure
	}
	return &forked{pid, pidfd, l.Report}, nil
}

// forks is fork, which must not fail.
func forks(t *testing.T, c *Execution, group int) *forked {
	t.Helper()
	s, failure := fork(c, group)
	if failure != nil {
		t.Fatal(Describe(failure.Step, failure))
	}
	return s
}

// reported reads the report to its end.
func (s *forked) reported(c *Execution) (runs bool, failure *StepError) {
	f := os.NewFile(uintptr(s.report), "report")
	defer f.Close()
	report, err := io.ReadAll(f)
	if err != nil {
		return false, Failed(StepStart, err)
	}
	return ParseReport(report, c)
}

func (s *forked) wait() (status syscall.WaitStatus) {
	unix.Close(s.pidfd)
	for {
		if _, err := syscall.Wait4(s.pid, &status, 0, nil); err != syscall.EINTR {
			return status
		}
	}
}

// runs is forks of a command that runs.
func runs(t *testing.T, c *Execution, group int) *forked {
	t.Helper()
	s := forks(t, c, group)
	if runs, failure := s.reported(c); !runs {
		t.Error(failure)
	}
	return s
}

// opened is what a process has open, by number. All eventfds have one name, but an ID each.
func opened(pid int) map[int]string {
	all, _ := proc.Descriptors(pid)
	for number := range all {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, number))
		_, id, _ := strings.Cut(string(text), "eventfd-id:")
		id, _, _ = strings.Cut(id, "\n")
		all[number] += id
	}
	return all
}

// Descriptors change places with each other, stay where they are, come twice, and leave gaps.
func TestDescriptorsGetTheirPlacesWhateverTheirNumbers(t *testing.T) {
	const most = 12
	var own []int
	for range most {
		fd := must.Get(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
		defer unix.Close(fd)
		own = append(own, fd)
	}
	random, ours := rand.New(rand.NewPCG(1, 2)), opened(os.Getpid())
	for range 40 {
		files := []int{0, 1, 2}
		for range random.IntN(2 * most) {
			fd := own[random.IntN(most)]
			if random.IntN(4) == 0 {
				fd = Closed
			}
			files = append(files, fd)
		}
		want := map[int]string{}
		for number, fd := range files {
			if fd != Closed {
				want[number] = ours[fd]
			}
		}
		s := runs(t, &Execution{Command: []string{"sleep", "1000"}, Files: files}, -1)
		defer func() { unix.Kill(s.pid, unix.SIGKILL); s.wait() }()
		t.Logf("%v become %v", files, want)
		// at its start it has others for a moment
		must.Become(t, "these", func() bool { return maps.Equal(opened(s.pid), want) })
	}
}

// The runtime must survive forks at any moment, and the new process any state of the runtime.
func TestThousandForksBesideABusyGarbageCollector(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	ctx, end := context.WithCancel(t.Context())
	var others, forks sync.WaitGroup
	busy := func(do func(n int)) {
		others.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				do(n)
			}
		})
	}
	for i := range 50 {
		kept := make([][]byte, 64)
		busy(func(n int) {
			if kept[n%len(kept)] = make([]byte, 1<<10+i); n%1000 == 0 {
				time.Sleep(time.Millisecond)
			}
		})
	}
	busy(func(int) { runtime.GC() })
	c := &Execution{
		Command:     []string{"sh", "-c", `[ "$LISTEN_PID" = $$ ] && [ "$WATCHDOG_PID" = $$ ] && [ "$LAST" = yes ]`},
		Files:       []int{0, 1, 2},
		Environment: append(os.Environ(), "LISTEN_FDS=1", "WATCHDOG_USEC=5", "LAST=yes"),
	}
	for range 8 {
		forks.Go(func() {
			for range 125 {
				s, failure := fork(c, -1)
				if failure != nil {
					t.Error(failure)
					return
				}
				runs, failure := s.reported(c)
				if status := s.wait(); !runs || status != 0 {
					t.Errorf("runs: %v, %v, status %#x", runs, failure, status)
				}
			}
		})
	}
	forks.Wait()
	end()
	others.Wait()
}

// Where clone3(2) cannot put the process into its group, the process enters the group itself.
func TestProcessEntersItsGroupItself(t *testing.T) {
	dir := t.TempDir()
	procs := filepath.Join(dir, "cgroup.procs")
	must.Do(t, os.WriteFile(procs, nil, 0o600))
	group := must.Get(unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0))(t) // not a group
	defer unix.Close(group)
	c := &Execution{Command: []string{"true"}, Files: []int{0, 1, 2}}
	runs(t, c, group).wait()
	if text, _ := os.ReadFile(procs); string(text) != "0" {
		t.Errorf("%q", text)
	}
}

// reports are messages of processes that fail, and what is said of each after "cannot".
var reports = []struct {
	step, hint, index uint8
	errno             syscall.Errno
	want              string
}{
	{codeFork, 0, 0, unix.EPERM, "start a process: operation not permitted"},
	{codeDescriptors, 0, 0, unix.EBADF, "set up descriptors: bad file descriptor"},
	{codeSignals, 0, 9, unix.EPERM, "reset signals: signal 9: operation not permitted"},
	{codeCapabilities, 0, 0, unix.EINVAL, "drop capabilities: invalid argument"},
	{codeLimits, 0, 0, unix.EPERM, "set limit core to unlimited: operation not permitted"},
	{codeLimits, 0, 1, unix.EPERM, "set limit nofile to 5: operation not permitted"},
	{codeLimits, 0, 2, unix.EPERM, "set limit operation not permitted"},
	{codeNice, 0, 0, unix.EACCES, "set nice 77: permission denied"},
	{codeOOM, 0, 0, unix.EACCES, "set oom_score_adj 77: permission denied"},
	{codeGroups, 0, 0, unix.EPERM, "set groups [9]: operation not permitted" + notRoot()},
	{codeGroup, 0, 0, unix.EPERM, "set group 8: operation not permitted" + notRoot()},
	{codeUser, 0, 0, unix.EPERM, "set user 7: operation not permitted" + notRoot()},
	{codeAmbient, hintLacks, 1, unix.EPERM,
		"set ambient capability CAP_KILL: operation not permitted (the supervisor does not have it)"},
	{codeAmbient, 0, 0, unix.EPERM, "set ambient capability CAP_CHOWN: operation not permitted"},
	{codeNoNewPrivileges, 0, 0, unix.EINVAL, "set no_new_privileges: invalid argument"},
	{codeDirectory, 0, 0, unix.ENOENT, "enter directory /srv: no such file or directory"},
	{codeExec, 0, 1, unix.ENOEXEC, "exec /b/web: exec format error (a script needs a #! line)"},
	{codeExec, 0, 2, unix.EIO, "exec web: input/output error"},
	{codeExec, hintLoader, 0, unix.ENOENT,
		"exec /a/web: its interpreter (the #! line, or the dynamic loader): no such file or directory"},
	{codeExec, hintNotFound, 0, unix.ENOENT, `exec web: not found in PATH "/a:/b": no such file or directory`},
	{codeExec, hintNotFound, 0, unix.EACCES,
		`exec web: found in PATH "/a:/b" but may not be executed: permission denied`},
}

func notRoot() string {
	if os.Geteuid() == 0 {
		return ""
	}
	return " (the supervisor does not run as root)"
}

func TestReports(t *testing.T) {
	score := 77
	c := &Execution{
		Command: []string{"web"}, Environment: []string{"PATH=/a:/b"}, Directory: "/srv",
		Credential: &Credential{UID: 7, GID: 8, Groups: []uint32{9}},
		Limits: Limits{
			RLimits: map[string]uint64{"nofile": 5, "core": RLimitInfinity}, Nice: &score, OOMScoreAdj: &score,
			AmbientCapabilities: []string{"CAP_CHOWN", "CAP_KILL"},
		},
	}
	limits := string([]byte{codeLimits, 0, 0, 0, byte(unix.EPERM), 0, 0, 0})
	all := map[string]string{"": "false", "+": "true", "{": "false", "+?": "false", "1234567": "false",
		"\xc8" + limits[1:]: "false", "\x00" + limits[1:]: "false", limits + "+": "false"}
	for _, r := range reports {
		in := string([]byte{r.step, r.hint, r.index, 0, byte(r.errno), 0, 0, 0}) // both architectures are little-endian
		if r.step == codeExec {
			in = "+" + in
		}
		all[in] = "false cannot " + r.want
	}
	for in, want := range all {
		runs, failure := ParseReport([]byte(in), c)
		got := fmt.Sprint(runs)
		if failure != nil {
			got += " " + Describe(failure.Step, failure)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestCommandIsLookedUpInItsDirectory(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "web"), []byte("#!/bin/sh\nexit 42\n"), 0o755))
	for command, path := range map[string]string{"web": "", "./web": "/bin", "../" + filepath.Base(dir) + "/web": ""} {
		for _, path := range []string{path, "/nonexistent:/etc/hosts:.:/bin"} {
			c := &Execution{Command: []string{command}, Environment: []string{"PATH=" + path}, Directory: dir,
				Files: []int{0, 1, 2}}
			if status := runs(t, c, -1).wait(); status.ExitStatus() != 42 {
				t.Errorf("%s in PATH %q: %#x", command, path, status)
			}
		}
	}
}

func TestCandidatesAreThoseOfExecvp(t *testing.T) {
	c := &Execution{Command: []string{"web"}, Environment: []string{"PATH=/x", "PATH=/a::b:/"}}
	if files, _ := c.candidates(); !slices.Equal(files, []string{"/a/web", "web", "b/web", "//web"}) {
		t.Errorf("%q", files)
	}
}

func TestCapabilitiesHaveTheirNumbers(t *testing.T) {
	for name, want := range map[string]int{"CAP_CHOWN": unix.CAP_CHOWN, "net_bind_service": unix.CAP_NET_BIND_SERVICE,
		"SYS_ADMIN": unix.CAP_SYS_ADMIN, "cap_bpf": unix.CAP_BPF, "CHECKPOINT_RESTORE": unix.CAP_LAST_CAP} {
		if got, known := Capability(name); !known || got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if len(capabilities) != unix.CAP_LAST_CAP+1 {
		t.Errorf("there are %d capabilities", len(capabilities))
	}
	if _, known := Capability("CAP_BOGUS"); known {
		t.Error("CAP_BOGUS is known")
	}
}

func TestMain(m *testing.M) { leftover.Main(m) }

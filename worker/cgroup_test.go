package worker

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/cgroup"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/spawn"
)

// inGroups makes a launcher put its workers into control groups below one created for the test.
func inGroups(t *testing.T) (Needs, string) {
	t.Helper()
	for _, own := range proc.OwnGroups() {
		base, err := os.MkdirTemp(own, "supervisord-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			if err := os.Remove(base); err != nil {
				t.Error(err)
			}
		})
		if unix.Access(base+"/cgroup.kill", unix.W_OK) == nil {
			return Needs{groups: cgroup.Under(base)}, base
		}
	}
	t.Skip("no cgroup v2 with cgroup.kill that this user may divide")
	return Needs{}, ""
}

func groupsIn(t *testing.T, base string) []string {
	t.Helper()
	return must.Get(filepath.Glob(base + "/" + "worker-" + "*"))(t)
}

// startHidden starts a worker with a grandchild that only its control group reveals. The script says the grandchild's
// PID first, at fd 3, and gets the end of fd 4 from end.
func startHidden(t *testing.T, l *Launcher, script string) (s *subject, child int, says *bufio.Scanner, end func()) {
	t.Helper()
	said, saidEnd := pipe(t)
	read, write := pipe(t)
	spec := shell(script)
	spec.Sockets = []int{int(saidEnd.Fd()), int(read.Fd())}
	s = started(t, l, spec)
	saidEnd.Close()
	read.Close()
	says = bufio.NewScanner(said)
	says.Scan()
	child = must.Get(strconv.Atoi(says.Text()))(t)
	return s, child, says, func() { write.Close() }
}

func TestNothingInAControlGroupOutlivesItsWorker(t *testing.T) {
	needs, base := inGroups(t)
	s, grandchild, _, end := startHidden(t, launcher(t, needs),
		`env -i setsid sh -c 'echo $$ >&3; exec sleep 1000' & read x <&4; exit 0`)
	if got := groupsIn(t, base); len(got) != 1 || s.w.State().Group != got[0] {
		t.Errorf("%q, %q", got, s.w.State().Group)
	}
	end()
	next[life.Exited](s)
	gone(t, grandchild)
	must.Become(t, "without a group", func() bool { return len(groupsIn(t, base)) == 0 })
}

func TestWorkerThatCannotBeStartedLeavesNoControlGroup(t *testing.T) {
	needs, base := inGroups(t)
	s := start(t, launcher(t, needs), command("/no/such/program"))
	if e := next[life.Exited](s); e.Step != spawn.StepExec {
		t.Errorf("%v", e)
	}
	must.Become(t, "without a group", func() bool { return len(groupsIn(t, base)) == 0 })
}

// TestMemoryAndOOMAreReadFromTheGroup uses a directory with the files of a group with the memory controller.
func TestMemoryAndOOMAreReadFromTheGroup(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"memory.current": "104857600\n",
		"memory.stat":    "anon 50000000\nfile 30000000\nfile_mapped 7\nshmem 10000000\n",
		"memory.events":  "low 0\noom 3\noom_kill 2\noom_group_kill 9\n",
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if used, ok := cgroup.Memory(dir); !ok || used != 104857600-20000000 {
		t.Errorf("%d %v", used, ok)
	}
	if !cgroup.OOMKilled(dir) || cgroup.OOMKilled(t.TempDir()) || cgroup.OOMKilled("") {
		t.Error("an OOM kill is not recognized, or another kill counts as one")
	}
	if _, ok := cgroup.Memory(t.TempDir()); ok {
		t.Error("memory without a controller")
	}
	if got := (life.Exited{Known: true, Status: 9, OOM: true}).String(); got != "killed by the kernel for memory (OOM)" {
		t.Error(got)
	}
}

// TestStopGoesOnWithWhatOnlyAControlGroupReveals: the worker is killed by TERM, and its grandchild, which nothing but
// the control group shows to be the worker's, gets TERM in its place and ends in its own time.
func TestStopGoesOnWithWhatOnlyAControlGroupReveals(t *testing.T) {
	needs, base := inGroups(t)
	s, grandchild, says, end := startHidden(t, launcher(t, needs), `env -i setsid sh -c 'trap "echo told >&3; `+
		`read x <&4; exit 0" TERM; echo $$ >&3; while :; do sleep 1000 & wait; done' & wait`)
	must.Do(t, s.w.Stop(syscall.SIGTERM, false))
	if says.Scan(); says.Text() != "told" {
		t.Fatalf("the grandchild says %q", says.Text())
	}
	if e := next[life.Outlived](s); e.First != "killed by SIGTERM" ||
		!strings.Contains(e.Left, fmt.Sprintf("sh (PID %d)", grandchild)) {
		t.Errorf("%+v", e)
	}
	if rest := s.w.State().Rest; rest == nil {
		t.Error("the next supervisord would not know of the grandchild")
	}
	end()
	if e := next[life.Exited](s); e.String() != "killed by SIGTERM" {
		t.Errorf("%s", e)
	}
	must.Become(t, "without a group", func() bool { return len(groupsIn(t, base)) == 0 })
}

func TestMemoryCountsTheProcessesBelow(t *testing.T) {
	s := started(t, launcher(t), shell(`sleep 100 & echo >&$NOTIFY_FD; wait`))
	next[life.ReadySaid](s)
	all, err := s.w.Memory(1 << 40)
	own, ownErr := proc.ReadStat(s.w.State().PID)
	if err != nil || ownErr != nil || all <= uint64(own.Resident) || own.Resident == 0 {
		t.Errorf("%d bytes of which %d are its own: %v %v", all, own.Resident, err, ownErr)
	}
	shared, err := s.w.Memory(0)
	if err != nil || shared == 0 || shared >= all {
		t.Errorf("its share is %d of %d: %v", shared, all, err)
	}
	s.end()
	if _, err := s.w.Memory(0); err == nil {
		t.Error("memory of a worker that has ended")
	}
}

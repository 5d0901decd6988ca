package worker

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/cgroup"
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
	list, err := filepath.Glob(base + "/" + "worker-" + "*")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// hidden is a worker with a grandchild that only its control group reveals.
const hidden = `env -i setsid sh -c 'echo $$ >&3; exec sleep 1000' & read x <&4; exit 0`

func startHidden(t *testing.T, l *Launcher) (s *subject, grandchild int, end func()) {
	t.Helper()
	said, saidEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	spec := shell(hidden)
	spec.Environment = []string{"PATH=" + os.Getenv("PATH")}
	spec.Sockets = []int{int(saidEnd.Fd()), int(read.Fd())}
	s = start(t, l, spec)
	must[life.Spawned](s)
	saidEnd.Close()
	read.Close()
	var buf [32]byte
	n, err := said.Read(buf[:])
	if err != nil {
		t.Fatal(err)
	}
	said.Close()
	grandchild, err = strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { write.Close() })
	return s, grandchild, func() { write.Close() }
}

func TestNothingInAControlGroupOutlivesItsWorker(t *testing.T) {
	needs, base := inGroups(t)
	l := launcher(t, needs)
	s, grandchild, end := startHidden(t, l)
	if got := groupsIn(t, base); len(got) != 1 || s.w.State().Group != got[0] {
		t.Errorf("%q, %q", got, s.w.State().Group)
	}
	end()
	must[life.Exited](s)
	if !eventually(func() bool { return unix.Kill(grandchild, 0) == unix.ESRCH }) {
		t.Errorf("process %d is left", grandchild)
		unix.Kill(grandchild, unix.SIGKILL)
	}
	if !eventually(func() bool { return len(groupsIn(t, base)) == 0 }) {
		t.Errorf("left: %q", groupsIn(t, base))
	}
}

func TestWorkerThatCannotBeStartedLeavesNoControlGroup(t *testing.T) {
	needs, base := inGroups(t)
	s := start(t, launcher(t, needs), Spec{Execution: spawn.Execution{Command: []string{"/no/such/program"}}})
	if e := must[life.Exited](s); e.Step != spawn.StepExec {
		t.Errorf("%v", e)
	}
	if !eventually(func() bool { return len(groupsIn(t, base)) == 0 }) {
		t.Errorf("left: %q", groupsIn(t, base))
	}
}

// TestMemoryAndOOMAreReadFromTheGroup uses a directory with the files of a group with the memory controller.
func TestMemoryAndOOMAreReadFromTheGroup(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"memory.current": "104857600\n",
		"memory.stat":    "anon 50000000\nfile 30000000\nfile_mapped 7\nshmem 10000000\n",
		"memory.events":  "low 0\noom 3\noom_kill 2\noom_group_kill 9\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
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
	l := launcher(t, needs)
	said, saidEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	spec := shell(`env -i setsid sh -c 'trap "echo told >&3; read x <&4; exit 0" TERM; echo $$ >&3; while :; do sleep ` +
		`1000 & wait; done' & wait`)
	spec.Environment = []string{"PATH=" + os.Getenv("PATH")}
	spec.Sockets = []int{int(saidEnd.Fd()), int(read.Fd())}
	s := start(t, l, spec)
	must[life.Spawned](s)
	saidEnd.Close()
	read.Close()
	lines := bufio.NewScanner(said)
	lines.Scan()
	grandchild := lines.Text()
	if err := s.w.Stop(syscall.SIGTERM, false); err != nil {
		t.Fatal(err)
	}
	if lines.Scan(); lines.Text() != "told" {
		t.Fatalf("the grandchild says %q", lines.Text())
	}
	if e := must[life.Outlived](s); e.First != "killed by SIGTERM" ||
		!strings.Contains(e.Left, "sh (PID "+grandchild+")") {
		t.Errorf("%+v", e)
	}
	if rest := s.w.State().Rest; rest == nil {
		t.Error("the next supervisord would not know of the grandchild")
	}
	write.Close()
	if e := must[life.Exited](s); e.String() != "killed by SIGTERM" {
		t.Errorf("%s", e)
	}
	if !eventually(func() bool { return len(groupsIn(t, base)) == 0 }) {
		t.Errorf("left: %q", groupsIn(t, base))
	}
}

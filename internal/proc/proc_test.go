package proc

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
)

func TestMain(m *testing.M) { leftover.Main(m) }

// sleeper starts a process that sleeps, and returns when it shows its arguments and environment: Start returns earlier,
// in the middle of the execve.
func sleeper(t *testing.T, environ ...string) *exec.Cmd {
	t.Helper()
	return asleep(t, environ, nil)
}

// asleep is sleeper for a process of another user.
func asleep(t *testing.T, environ []string, user *syscall.Credential) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "1000")
	c.Env, c.SysProcAttr = environ, &syscall.SysProcAttr{Credential: user}
	must.Do(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	for shown := false; !shown; time.Sleep(time.Millisecond) {
		line, err := os.ReadFile(Path(c.Process.Pid, "cmdline"))
		shown = err != nil || len(line) > 0
	}
	return c
}

func TestStatOfThisProcess(t *testing.T) {
	s := must.Get(ReadStat(os.Getpid()))(t)
	group, _ := unix.Getpgid(0)
	if s.PID != os.Getpid() || s.Parent != os.Getppid() || s.Group != group || s.Dead() || s.Resident <= 0 ||
		s.Virtual < s.Resident {
		t.Errorf("%+v", s)
	}
	boot, err := BootTime()
	if age := time.Since(boot.Add(s.Began)); err != nil || age < -2*time.Second || age > time.Hour {
		t.Errorf("this process began %v ago, %v", age, err)
	}
	if !slices.ContainsFunc(Stats(), func(s Stat) bool { return s.PID == os.Getpid() }) {
		t.Error("it is not among all processes")
	}
}

func TestStatWithAnyName(t *testing.T) {
	const rest = " S 1 2 3 0 -1 4194304 1 2 3 4 100 50 0 0 20 0 1 0 700 8192 3 18446744073709551615"
	for _, name := range []string{"(a)", "(a b)", "(a) R 9 9 9)", "(((", "()"} {
		s, err := parseStat([]byte("7 " + name + rest))
		if name == "(((" {
			if err == nil {
				t.Errorf("%q: %+v", name, s)
			}
			continue
		}
		want := Stat{PID: 7, Parent: 1, Group: 2, Session: 3, State: 'S', CPU: 1500 * time.Millisecond,
			Began:   7 * time.Second,
			Virtual: 8192, Resident: 3 * int64(os.Getpagesize())}
		if err != nil || s != want {
			t.Errorf("%q: %+v, %v", name, s, err)
		}
	}
	for _, bad := range []string{"", "7", "7 (a)", "1 (a", ") (", "7 (a) S 1 2", "x (a)" + rest, "1 (a) S x" + rest,
		"7 (a) S 1 7 7 0 -1 4194560 1 2 3 4 x 50 0 0 20 0 9 0 12345 777 88 1"} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}

func TestProcess(t *testing.T) {
	c := sleeper(t, "A=1", "B=x=y")
	pid := c.Process.Pid
	environ, err := Environ(pid)
	if err != nil || len(environ) != 2 || environ["A"] != "1" || environ["B"] != "x=y" {
		t.Errorf("%v, %v", environ, err)
	}
	if twice := parseEnviron([]byte("A=1\x00nothing\x00A=2\x00")); len(twice) != 1 || twice["A"] != "1" {
		t.Errorf("%v", twice)
	}
	if Name(pid) != "sleep" || !slices.Contains(PIDs(), pid) {
		t.Errorf("%q", Name(pid))
	}
	if !slices.Contains(Children(os.Getpid()), pid) || !slices.Contains(Descendants(os.Getppid()), pid) {
		t.Error("the process does not count as a child of this one")
	}
	if lines, err := Status(pid); err != nil || lines["PPid"] != strconv.Itoa(os.Getpid()) {
		t.Errorf("%v, %v", lines, err)
	}
	if links, err := Descriptors(pid); err != nil || links[0] != "/dev/null" {
		t.Errorf("%v, %v", links, err)
	}
	little, err1 := MemoryOfTree(pid, 0)
	much, err2 := MemoryOfTree(pid, math.MaxUint64)
	if err := errors.Join(err1, err2); err != nil || little == 0 || much < little {
		t.Errorf("PSS %d, RSS %d, %v", little, much, err)
	}
}

func TestPidfdOfAnExitedProcess(t *testing.T) {
	c := sleeper(t)
	pid := c.Process.Pid
	pidfd := must.Get(unix.PidfdOpen(pid, 0))(t)
	defer unix.Close(pidfd)
	if of, err := PIDOf(pidfd); of != pid || err != nil || !Exists(pidfd) {
		t.Errorf("the pidfd of %d belongs to %d, %v", pid, of, err)
	}
	if _, known := ExitStatus(pidfd); known {
		t.Error("a running process has an exit status")
	}
	c.Process.Kill()
	c.Wait()
	if of, err := PIDOf(pidfd); of != -1 || err != nil || Exists(pidfd) {
		t.Errorf("the pidfd of a reaped process belongs to %d, %v", of, err)
	}
	if status, known := ExitStatus(pidfd); known && status.Signal() != syscall.SIGKILL {
		t.Errorf("status %v", status)
	}
	_, err1 := ReadStat(pid)
	_, err2 := Descriptors(pid)
	_, err3 := MemoryOfTree(pid, 0)
	if !Gone(err1) || !Gone(err2) || !Gone(err3) || len(Children(pid)) > 0 {
		t.Error(err1, err2, err3)
	}
	if _, err := PIDOf(0); err == nil {
		t.Error("stdin is a pidfd")
	}
}

func TestAccounts(t *testing.T) {
	root, err := LookupAccount("root")
	byNumber, err2 := LookupAccount("0")
	if errors.Join(err, err2) != nil || root.UID != 0 || root.Home != byNumber.Home ||
		!slices.Contains(root.Groups, root.GID) {
		t.Errorf("%+v, %v; %+v, %v", root, err, byNumber, err2)
	}
	if uid, err := UID("root"); uid != 0 || err != nil || UserName(0) != "root" {
		t.Errorf("UID of root: %d, %v", uid, err)
	}
	if uid, err := UID("4294967294"); uid != 4294967294 || err != nil {
		t.Errorf("an unused user ID: %d, %v", uid, err)
	}
	for _, look := range []func(string) (uint32, error){UID, GID} {
		if _, err := look("4294967295"); !errors.Is(err, ErrIDRange) {
			t.Errorf("an unused user ID: %v", err)
		}
		if _, err := look("nosuchname"); !Unknown(err) {
			t.Errorf("an unused name: %v", err)
		}
	}
	if name := UserName(4294967294); name != "" {
		t.Errorf("%q", name)
	}
}

func TestOwnGroups(t *testing.T) {
	groups := OwnGroups()
	if len(groups) == 0 {
		t.Skip("cgroup v2 is not available")
	}
	for _, dir := range groups {
		if _, err := os.Stat(dir + "/cgroup.procs"); err == nil && !slices.Contains(GroupMembers(dir), os.Getpid()) {
			t.Errorf("this process is not in %s", dir)
		}
	}
}

func TestSleepingIsWhatNoThreadRuns(t *testing.T) {
	asleep := sleeper(t).Process.Pid
	busy := exec.Command("sh", "-c", "while :; do :; done")
	must.Do(t, busy.Start())
	t.Cleanup(func() { _, _ = busy.Process.Kill(), busy.Wait() })
	naps, all := Sleeping([]int{asleep})
	for begun := time.Now(); !all && time.Since(begun) < 30*time.Second; { // it may have just begun
		naps, all = Sleeping([]int{asleep})
	}
	if naps[strconv.Itoa(asleep)] == "" || !all {
		t.Errorf("%v sleep: %v", naps, all)
	}
	if _, all := Sleeping([]int{asleep, busy.Process.Pid}); all {
		t.Error("one that runs sleeps")
	}
	if naps, all := Sleeping([]int{1 << 22}); len(naps) > 0 || !all {
		t.Errorf("of a process that is gone %v sleep: %v", naps, all)
	}
}

func TestSignalEndsWhatDoesNothingAboutIt(t *testing.T) {
	asleep := sleeper(t).Process.Pid
	for signal, want := range map[syscall.Signal]bool{unix.SIGTERM: true, unix.SIGKILL: true, unix.SIGUSR1: true,
		unix.SIGWINCH: false, unix.SIGCONT: false} {
		if Dies(asleep, signal) != want {
			t.Errorf("of %v it dies: %v", signal, !want)
		}
	}
	if Dies(os.Getpid(), unix.SIGTERM) {
		t.Error("a Go program catches TERM")
	}
	if Dies(1<<22, unix.SIGTERM) {
		t.Error("one that is gone dies")
	}
	ignoring := exec.Command("sh", "-c", "trap '' TERM; echo; exec sleep 1000")
	said := must.Get(ignoring.StdoutPipe())(t)
	must.Do(t, ignoring.Start())
	t.Cleanup(func() { _, _ = ignoring.Process.Kill(), ignoring.Wait() })
	must.Get(said.Read(make([]byte, 1)))(t)
	if pid := ignoring.Process.Pid; Dies(pid, unix.SIGTERM) || !Dies(pid, unix.SIGUSR1) {
		t.Error("one that ignores TERM, and not USR1")
	}
}

func TestTargetsOfAnEpollAreReadAsTheKernelWritesThem(t *testing.T) {
	const text = "pos:\t0\nflags:\t02\nmnt_id:\t16\nino:\t2\n" +
		"tfd:        5 events:       19 data: ffffffff00000005  pos:0 ino:1f2e sdev:8\n" +
		"tfd:      700 events: 80002005 data:                7  pos:12 ino:a sdev:10\n" +
		"tfd:        8 events:       19 data: 8\n" + "tfd: x events: 1 ino:1 sdev:8\n"
	want := []EpollTarget{{5, 0x19, 0xffffffff00000005, 0x1f2e, "8"}, {700, 0x80002005, 7, 10, "10"}}
	if got := targetsIn(text); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The kernel leaves a child out of the list if one before it is reaped meanwhile.
func TestChildrenAreListedWhileOthersAreReaped(t *testing.T) {
	c := exec.Command("sh", "-c", `
		for i in $(seq 200); do sleep 0.$((i % 90 + 10)) & sleep 1000 & echo $!; /bin/true; done
		for i in $(seq 100); do sleep 0.01; done
		echo 0; wait`)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said := must.Get(c.StdoutPipe())(t)
	must.Do(t, c.Start())
	t.Cleanup(func() {
		unix.Kill(-c.Process.Pid, unix.SIGKILL)
		c.Wait()
	})
	stay := make(chan int, 1000)
	go func() {
		for pid := -1; pid != 0; stay <- pid {
			if _, err := fmt.Fscan(said, &pid); err != nil {
				pid = 0
			}
		}
	}()
	var known []int
	for looks, more := 1, true; more; looks++ {
		select {
		case pid := <-stay:
			if more = pid != 0; more {
				known = append(known, pid)
			}
		default:
		}
		list := Children(c.Process.Pid)
		for _, pid := range known {
			if !slices.Contains(list, pid) {
				t.Fatalf("look %d: %d is not in a list of %d", looks, pid, len(list))
			}
		}
	}
	if len(known) != 200 {
		t.Errorf("%d children instead of 200", len(known))
	}
}

package proc

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/lab/must"
)

const nobody = 65534

// likeTheUnit calls f on a thread of root that ends afterwards and has no other capabilities than these, which
// systemd/supervisord.service leaves to start workers: CAP_PERFMON and CAP_SYS_ADMIN would show the memory, too.
func likeTheUnit(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	done := make(chan error, 1)
	go func() {
		defer close(done) // also when a test fails
		runtime.LockOSThread()
		const left = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_DAC_OVERRIDE
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		data := [2]unix.CapUserData{{Effective: left, Permitted: left}}
		err := unix.Capset(&header, &data[0])
		if err == nil {
			f()
		}
		done <- err
	}()
	must.Do(t, <-done)
}

// ofNobody starts a process of another user that can be looked at. It shares the memory of this process until its exec,
// and the change of its user makes both undumpable.
func ofNobody(t *testing.T, environ ...string) int {
	t.Helper()
	c := asleep(t, environ, &syscall.Credential{Uid: nobody, Gid: nobody})
	must.Do(t, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
	return c.Process.Pid
}

func TestRootWithoutPtraceReadsWhatIsAnotherUsers(t *testing.T) {
	likeTheUnit(t, func() {
		pid := ofNobody(t, "A=1")
		if _, err := os.ReadFile(Path(pid, "environ")); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("this thread can read another user's environment as it is: %v", err)
		}
		environ, err := Environ(pid)
		if err != nil || environ["A"] != "1" {
			t.Errorf("%v, %v", environ, err)
		}
		if links, err := Descriptors(pid); err != nil || links[0] != os.DevNull {
			t.Errorf("%v, %v", links, err)
		}
		if info, err := DescriptorInfo(pid, 0); err != nil || info["flags"] == "" {
			t.Errorf("%v, %v", info, err)
		}
		if to, err := Readlink(pid, "ns/pid"); err != nil || to != must.Get(os.Readlink("/proc/self/ns/pid"))(t) {
			t.Errorf("%q, %v", to, err)
		}
		if call, err := ReadFile(pid, "syscall"); err != nil { // such as "running", or a number
			t.Errorf("%q, %v", call, err)
		}
		if rollup, err := linesOf(ReadFile(pid, "smaps_rollup")); err != nil || rollup["Pss"] == "" {
			t.Errorf("%v, %v", rollup, err)
		}
		if _, err := ReadMemory(pid, 0, 1); !errors.Is(err, unix.EIO) { // opened: there is nothing at 0
			t.Error(err)
		}
		// on another thread, which has the capability
		if environ, err := BoundedEnviron(new(foreign.Looks), pid); err != nil || environ["A"] != "1" {
			t.Errorf("%v, %v", environ, err)
		}
	})
}

func TestThreadIsItselfAgainAfterALookAsTheOwner(t *testing.T) {
	likeTheUnit(t, func() {
		pid := ofNobody(t)
		must.Do(t, unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGURG), 0, 0, 0))
		users := func() [2]int {
			uid, gid, err := fileUser()
			must.Do(t, err)
			return [2]int{uid, gid}
		}
		lets := func(when string) {
			if is := must.Get(unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0))(t); is != 1 {
				t.Errorf("%s this process does not let others look at it", when)
			}
		}
		var outer, nested, after [2]int
		AsOwner(pid, func() {
			outer = users()
			AsOwner(os.Getpid(), func() { nested = users() })
			after = users()
			lets("during a look")
		})
		lets("after a look")
		if root, other := [2]int{}, [2]int{nobody, nobody}; outer != other || nested != root || after != other ||
			users() != root {
			t.Errorf("%v, nested %v, then %v, afterwards %v", outer, nested, after, users())
		}
		var death int32
		_, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&death)), 0)
		if errno != 0 || death != int32(unix.SIGURG) {
			t.Errorf("the signal for the death of the parent is %d: %v", death, errno)
		}
		AsOwner(1<<30, func() { outer = users() }) // no such process
		acted := false
		if ActAs(1<<30, func() { acted = true }); acted || outer != [2]int{} {
			t.Errorf("acts as the owner of a process that there is not: %v, %v", acted, outer)
		}
		if ActAs(pid, func() { acted = users() == [2]int{nobody, nobody} }); !acted {
			t.Error("cannot act as another user")
		}
	})
}

// A process that has changed its user without an exec needs the capability: the kernel guards what it had read before.
func TestProcessThatHasChangedItsUserItselfIsNotSeen(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	likeTheUnit(t, func() {
		c := exec.Command(python, "-S", "-c",
			"import os; os.setgid(65534); os.setuid(65534); print(flush=True); os.read(0, 1)")
		in, out := must.Get(c.StdinPipe())(t), must.Get(c.StdoutPipe())(t)
		must.Do(t, c.Start())
		defer c.Wait() //nolint:errcheck // it ends with in
		defer in.Close()
		must.Get(out.Read(make([]byte, 1)))(t)
		if _, err := Descriptors(c.Process.Pid); !errors.Is(err, fs.ErrPermission) {
			t.Error(err)
		}
	})
}

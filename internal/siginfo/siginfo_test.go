package siginfo

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/lab/must"
)

var queues = Queues{syscall.SIGTERM: make(chan Caught, 4), syscall.SIGUSR2: make(chan Caught, 1),
	35: make(chan Caught, 100)}

var catcher = sync.OnceValues(func() (*Catcher, error) { return Catch(queues) })

func start(t *testing.T) *Catcher {
	t.Helper()
	c := must.Get(catcher())(t)
	return c
}

func TestSignalNamesItsSender(t *testing.T) {
	start(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGUSR2, 35} {
		sh := exec.Command("sh", "-c", "kill -"+strconv.Itoa(int(sig))+" "+strconv.Itoa(os.Getpid())+"; read wait")
		stdin := must.Get(sh.StdinPipe())(t)
		must.Do(t, sh.Start())
		s := <-queues[sig]
		if s.Number != sig || s.PID != sh.Process.Pid || s.UID != uint32(os.Getuid()) || s.Code != 0 ||
			s.Sender.Name != "sh" || s.Sender.Lineage[0] != s.PID {
			t.Errorf("%+v, sent by %d", s, sh.Process.Pid)
		}
		stdin.Close()
		sh.Wait()
	}
}

// TestEverySignalOfAStormArrivesWhileGoroutinesWork has two of them on threads whose tables of descriptors do not have
// the pipe of the handler.
func TestEverySignalOfAStormArrivesWhileGoroutinesWork(t *testing.T) {
	start(t)
	var work sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		work.Go(func() {
			if i%2 == 0 {
				if err := foreign.StandApart(); err != nil {
					t.Error(err)
				}
			}
			for garbage := [][]byte{}; ; {
				select {
				case <-done:
					return
				default:
					garbage = append(garbage[:len(garbage)%1000], make([]byte, 1000))
				}
			}
		})
	}
	for i := range 200 {
		s := Caught{Number: 35, Code: -1, PID: i + 1<<20, UID: 7}
		runtime.LockOSThread()
		_, _, err := unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(os.Getpid()), 35, uintptr(unsafe.Pointer(s.raw())))
		runtime.UnlockOSThread()
		if err != 0 {
			t.Fatal(err)
		}
		if got := <-queues[35]; got.PID != s.PID || got.Code != -1 || got.UID != 7 || got.Sender.Name != "" {
			t.Fatalf("%+v instead of %+v", got, s)
		}
	}
	close(done)
	work.Wait()
}

func TestTakenSignalsComeAgainWithTheirSender(t *testing.T) {
	c := start(t)
	want := Caught{Number: syscall.SIGTERM, PID: 1, UID: 4}
	Again([]Caught{want})
	before := Ignore.Set(syscall.SIGTERM)
	got := c.Take()
	before.Set(syscall.SIGTERM)
	if len(got) != 1 || got[0].String() != want.String() {
		t.Fatalf("%v", got)
	}
	Again(got)
	if s := <-queues[syscall.SIGTERM]; s.String() != want.String() || !slices.Contains(s.Sender.Lineage, 1) {
		t.Errorf("%+v", s)
	}
}

func TestSignalWithoutAHandlerYetIsTaken(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := sigset([]syscall.Signal{syscall.SIGUSR1, 36})
	var before unix.Sigset_t
	must.Do(t, unix.PthreadSigmask(unix.SIG_BLOCK, &set, &before))
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)       // its arguments are right
	for _, sig := range []syscall.Signal{36, syscall.SIGUSR1, 36} { // a real-time signal is queued each time
		unix.Tgkill(os.Getpid(), unix.Gettid(), sig) // this thread is there
	}
	var numbers []syscall.Signal
	for _, s := range Pending([]syscall.Signal{syscall.SIGUSR1, 36}) {
		numbers = append(numbers, s.Number)
		if s.PID != os.Getpid() {
			t.Errorf("sent by %d", s.PID)
		}
	}
	if want := []syscall.Signal{syscall.SIGUSR1, 36, 36}; !slices.Equal(numbers, want) {
		t.Errorf("took %v, want %v", numbers, want)
	}
	if got := Pending([]syscall.Signal{syscall.SIGUSR1, 36}); len(got) > 0 {
		t.Errorf("took %v once more", got)
	}
	var mask unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask); err != nil || mask.Val[0]&set.Val[0] != set.Val[0] {
		t.Errorf("the mask of the thread was changed to %x: %v", mask.Val[0], err)
	}
}

func TestOnlyTextOfASignalIsParsed(t *testing.T) {
	for _, text := range []string{"", "15", "x/0/1/2", "0/0/1/2", "-1/0/1/2", "15/0/-1/2", "15/0/1/2/3"} {
		if s, err := Parse(text); err == nil {
			t.Errorf("%q gives %v", text, s)
		}
	}
	if s, err := Parse("15/128/0/7"); err != nil || s.String() != "15/128/0/7" || s.Code != FromKernel {
		t.Errorf("%v, %v", s, err)
	}
}

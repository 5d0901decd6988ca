package handover

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// handlerOf returns what the kernel does about a signal: sigDefault, sigIgnore, or another number for Go's handler.
func handlerOf(sig syscall.Signal) uintptr {
	var now sigaction
	rtSigaction(sig, nil, &now)
	return now.handler
}

func TestCaughtSignalsGoToTheNewImageOrComeAgain(t *testing.T) {
	again := make(chan os.Signal, 3)
	signal.Notify(again, syscall.SIGHUP, syscall.SIGTERM, LeaveSignal)
	defer signal.Stop(again)
	handler, caught := handlerOf(syscall.SIGTERM), []syscall.Signal{syscall.SIGHUP, LeaveSignal}
	err := execute(Image{
		Caught: func() []syscall.Signal {
			for sig, want := range map[syscall.Signal]uintptr{
				syscall.SIGHUP: sigIgnore, syscall.SIGUSR2: sigIgnore, syscall.SIGTERM: sigDefault, LeaveSignal: sigDefault,
			} {
				if got := handlerOf(sig); got != want {
					t.Errorf("the handler of %v is %d, want %d, or the signal is lost", sig, got, want)
				}
			}
			return caught
		},
		Exec: func(_ string, _, env []string) error {
			if got, want := Caught(env), append([]syscall.Signal{syscall.SIGTERM}, caught...); !slices.Equal(got, want) {
				t.Errorf("the new image gets %v, want %v", got, want)
			}
			return errors.New("no such image")
		},
	}, []string{"A=b", signalsVariable + "=15"}, nil)
	if err == nil {
		t.Error("no error")
	}
	for got := []os.Signal{}; len(got) < 3; {
		got = append(got, <-again)
	}
	if got := handlerOf(syscall.SIGTERM); got != handler {
		t.Errorf("afterwards the handler of TERM is %d, want %d", got, handler)
	}
}

func TestNothingIsCaughtWithoutTheVariable(t *testing.T) {
	for _, value := range []string{"", ",", "x", "-1", "0"} {
		if got := Caught([]string{signalsVariable + "=" + value}); len(got) > 0 {
			t.Errorf("%q gives %v", value, got)
		}
	}
}

func TestSignalWithoutAHandlerYetIsTaken(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := unix.Sigset_t{Val: [16]uint64{1<<(syscall.SIGUSR1-1) | 1<<(LeaveSignal-1)}}
	var before unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &before); err != nil {
		t.Fatal(err)
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)                         //nolint:errcheck // its arguments are right
	for _, sig := range []syscall.Signal{LeaveSignal, syscall.SIGUSR1, LeaveSignal} { // a real-time signal is queued each time
		unix.Tgkill(os.Getpid(), unix.Gettid(), sig) //nolint:errcheck // this thread is there
	}
	if got, want := unhandled([]syscall.Signal{syscall.SIGUSR1, LeaveSignal}), []syscall.Signal{syscall.SIGUSR1, LeaveSignal, LeaveSignal}; !slices.Equal(got, want) {
		t.Errorf("took %v, want %v", got, want)
	}
	if got := unhandled([]syscall.Signal{syscall.SIGUSR1, LeaveSignal}); len(got) > 0 {
		t.Errorf("took %v once more", got)
	}
	var mask unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask); err != nil || mask.Val[0]&set.Val[0] != set.Val[0] {
		t.Errorf("the mask of the thread was changed to %x: %v", mask.Val[0], err)
	}
}

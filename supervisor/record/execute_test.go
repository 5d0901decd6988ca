package record

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"example.org/supervisord/internal/siginfo"
)

// handlerOf returns what the kernel does about a signal.
func handlerOf(sig syscall.Signal) siginfo.Disposition {
	now := siginfo.Ignore.Set(sig)
	now.Set(sig)
	return now
}

func TestCaughtSignalsGoToTheNewImageOrComeAgain(t *testing.T) {
	again := make(chan os.Signal, 3)
	signal.Notify(again, syscall.SIGHUP, syscall.SIGTERM, LeaveSignal)
	defer signal.Stop(again)
	handler := handlerOf(syscall.SIGTERM)
	caught := []siginfo.Caught{{Number: syscall.SIGHUP, PID: 7, UID: 8}, {Number: LeaveSignal}}
	err := execute(Image{
		Caught: func() []siginfo.Caught {
			for sig, want := range map[syscall.Signal]siginfo.Disposition{
				syscall.SIGHUP: siginfo.Ignore, syscall.SIGUSR2: siginfo.Ignore,
				syscall.SIGTERM: siginfo.Default, LeaveSignal: siginfo.Default,
			} {
				if got := handlerOf(sig); got != want {
					t.Errorf("the handler of %v is %v, want %v, or the signal is lost", sig, got, want)
				}
			}
			return caught
		},
		Exec: func(_ string, _, env []string) error {
			all := append([]siginfo.Caught{{Number: syscall.SIGTERM, PID: 5}}, caught...)
			if got, want := fmt.Sprint(Caught(env)), fmt.Sprint(all); got != want {
				t.Errorf("the new image gets %v, want %v", got, want)
			}
			return errors.New("no such image")
		},
	}, []string{"A=b", signalsVariable + "=15/0/5/0"}, nil)
	if err == nil {
		t.Error("no error")
	}
	for got := []os.Signal{}; len(got) < 3; {
		got = append(got, <-again)
	}
	if got := handlerOf(syscall.SIGTERM); got != handler {
		t.Errorf("afterwards the handler of TERM is %v, want %v", got, handler)
	}
}

func TestNothingIsCaughtWithoutTheVariable(t *testing.T) {
	for _, value := range []string{"", ",", "x", "-1", "0"} {
		if got := Caught([]string{signalsVariable + "=" + value}); len(got) > 0 {
			t.Errorf("%q gives %v", value, got)
		}
	}
}

package foreign

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

// lingering returns a connected TCP socket whose last close waits for an hour, because its data is never read.
func lingering(t *testing.T) int {
	t.Helper()
	l := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	must.Do(t, unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must.Do(t, unix.Listen(l, 1))
	at := must.Get(unix.Getsockname(l))(t)
	c := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	must.Do(t, unix.SetsockoptLinger(c, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}))
	must.Do(t, unix.Connect(c, at))
	peer, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
	must.Do(t, err)
	t.Cleanup(func() {
		unix.Close(peer)
		unix.Close(l)
	})
	must.Do(t, unix.SetNonblock(c, true))
	for err = nil; err == nil; {
		_, err = unix.Write(c, make([]byte, 1<<16))
	}
	if err != unix.EAGAIN {
		t.Fatal(err)
	}
	return c
}

func pair(t *testing.T) (ours, theirs int) {
	t.Helper()
	p := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))(t)
	return p[0], p[1]
}

func send(to int, text string, fds ...int) error {
	_, err := unix.SendmsgN(to, []byte(text), unix.UnixRights(fds...), nil, 0)
	return err
}

func descriptors(t *testing.T) int {
	t.Helper()
	list := must.Get(os.ReadDir("/proc/self/fd"))(t)
	return len(list)
}

func TestCloserNeitherWaitsNorKeepsThreads(t *testing.T) {
	before := descriptors(t)
	var c Closer
	for range 3 * maxThreads {
		ours, theirs := pair(t)
		slow := lingering(t)
		must.Do(t, send(theirs, "x", slow))
		unix.Close(slow)
		unix.Close(theirs)
		begin := time.Now()
		c.Do(func() { unix.Close(ours) })
		if took := time.Since(begin); took > 5*time.Second {
			t.Fatalf("it waited for %v", took)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.Wait(ctx); err != nil {
		t.Errorf("the closings are stuck: %v", err)
	}
	if now := descriptors(t); now != before+2*3*maxThreads { // a listener and a peer for each
		t.Errorf("%d descriptors instead of %d", now, before)
	}
}

func TestOnlyClosesBeyondTheThreadLimitWait(t *testing.T) {
	var c Closer
	stuck := make(chan struct{})
	for range maxThreads {
		c.Do(func() { <-stuck })
	}
	read, write := pair(t)
	defer unix.Close(read)
	c.Do(func() { unix.Close(write) })
	if _, err := unix.FcntlInt(uintptr(write), unix.F_GETFD, 0); err != nil {
		t.Error("closed, with all threads stuck")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrDeadlineExceeded)
	if err := c.Wait(ctx); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Wait: %v", err)
	}
	close(stuck)
	must.Do(t, c.Wait(t.Context()))
	if n, err := Read(read, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("not closed: %d, %v", n, err)
	}
}

func TestThreadThatIsStuckTakesNoSignalFromTheProcess(t *testing.T) {
	for name, call := range map[string]func(func()){"quiet": quiet, "Apart": Apart} {
		t.Run(name, func(t *testing.T) {
			var before, inside, after unix.Sigset_t
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			must.Do(t, unix.PthreadSigmask(unix.SIG_BLOCK, nil, &before))
			call(func() { unix.PthreadSigmask(unix.SIG_BLOCK, nil, &inside) })
			must.Do(t, unix.PthreadSigmask(unix.SIG_BLOCK, nil, &after))
			for sig, want := range map[unix.Signal]bool{unix.SIGCHLD: true, unix.SIGTERM: true, unix.SIGHUP: true,
				unix.SIGUSR2: true, unix.SIGURG: false, unix.SIGSEGV: false} {
				if blocked := inside.Val[0]&(1<<(sig-1)) != 0; blocked != want {
					t.Errorf("%s is blocked: %v", unix.SignalName(sig), blocked)
				}
			}
			if before != after {
				t.Errorf("%x is blocked afterwards, and was %x before", after.Val[0], before.Val[0])
			}
		})
	}
}

func TestLineKeepsTheOrder(t *testing.T) {
	var l Line
	var got []int
	first, done := make(chan struct{}), make(chan struct{})
	l.Do(func() { <-first })
	for i := range 100 {
		l.Do(func() { got = append(got, i) })
	}
	l.Do(func() { close(done) })
	close(first)
	<-done
	if !slices.IsSorted(got) || len(got) != 100 {
		t.Errorf("%v", got)
	}
}

func TestReadTakesNoDescriptors(t *testing.T) {
	ours, theirs := pair(t)
	defer unix.Close(theirs)
	var c Closer
	slow := lingering(t)
	must.Do(t, send(theirs, "first"))
	buf := make([]byte, 3)
	if n, err := Read(ours, buf); string(buf[:n]) != "fir" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	must.Do(t, send(theirs, "more", slow))
	unix.Close(slow)
	if n, err := Read(ours, make([]byte, 100)); !errors.Is(err, errRights) {
		t.Errorf("%d, %v", n, err)
	}
	c.Do(func() { unix.Close(ours) })
	must.Do(t, c.Wait(t.Context()))
}

func TestReadIsOtherwiseRead(t *testing.T) {
	ours, theirs := pair(t)
	defer unix.Close(ours)
	buf := make([]byte, 100)
	if _, err := Read(ours, buf); !errors.Is(err, unix.EAGAIN) {
		t.Error(err)
	}
	must.Do(t, send(theirs, "last"))
	unix.Close(theirs)
	if n, err := Read(ours, buf); string(buf[:n]) != "last" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if n, err := Read(ours, buf); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestRefusedRightsAreTheSendersError(t *testing.T) {
	ours, theirs := pair(t)
	defer unix.Close(ours)
	defer unix.Close(theirs)
	if err := unix.SetsockoptInt(ours, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 1); err != nil {
		t.Skipf("the kernel has no SO_PASSRIGHTS: %v", err)
	}
	RefuseRights(ours)
	if err := send(theirs, "x", ours); !errors.Is(err, unix.EPERM) {
		t.Errorf("they are sent: %v", err)
	}
	must.Do(t, send(theirs, "x"))
}

func TestConnectionsInheritThatRightsAreRefused(t *testing.T) {
	l := must.Get(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(l)
	if err := unix.SetsockoptInt(l, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 1); err != nil {
		t.Skipf("the kernel has no SO_PASSRIGHTS: %v", err)
	}
	RefuseRights(l)
	at := &unix.SockaddrUnix{Name: t.TempDir() + "/s"}
	must.Do(t, unix.Bind(l, at))
	must.Do(t, unix.Listen(l, 1))
	c := must.Get(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(c)
	must.Do(t, unix.Connect(c, at))
	if err := send(c, "x", l); !errors.Is(err, unix.EPERM) { // before the connection is accepted
		t.Errorf("they are sent: %v", err)
	}
}

func TestLookThatIsStuckIsLeftAlone(t *testing.T) {
	var l Looks
	stuck := make(chan struct{})
	over, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrDeadlineExceeded)
	one := func() int { return 1 }
	for i := range maxStuck {
		if _, err := Look(over, &l, i, func() int { <-stuck; return 1 }); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err := Look(t.Context(), &l, i, one); !errors.Is(err, ErrStuck) {
			t.Fatalf("the second time: %v", err)
		}
	}
	if _, err := Look(t.Context(), &l, maxStuck, one); !errors.Is(err, ErrStuck) {
		t.Errorf("one more than the limit of stuck loads: %v", err)
	}
	close(stuck)
	for i := range maxStuck + 1 {
		for !l.may(i) {
			time.Sleep(time.Millisecond)
		}
	}
	if v, err := Look(t.Context(), &l, 0, one); v != 1 || err != nil || len(l.stuck) != 0 {
		t.Errorf("%d, %v, %v", v, err, l.stuck)
	}
}

func TestReadReturnsTheErrorOfWhatReads(t *testing.T) {
	var l Looks
	read := func(path string) ([]byte, error) {
		return l.Read(path, func() ([]byte, error) { return os.ReadFile(path) })
	}
	if _, err := read("/proc/self/nothing"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if text, err := read("/proc/self/comm"); len(text) == 0 || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

package bind

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/spawn"
)

// withFilter starts a process with the filter, whose notifications come to fd, until the end of the test.
func withFilter(t *testing.T, what spawn.Execution) (pid, pidfd, fd int) {
	t.Helper()
	what.Filter, what.Limits.NoNewPrivileges = Filter(), true
	launch, failure := spawn.Prepare(&what)
	if failure != nil {
		t.Fatal(failure)
	}
	t.Cleanup(func() { unix.Close(launch.Report) }) // to which the process writes until its exec
	pid, pidfd, failure = launch.Fork(-1)
	launch.Close()
	if failure != nil {
		t.Fatal(failure)
	}
	t.Cleanup(func() { reap(pidfd) })
	for fd = -1; fd < 0; {
		unix.Poll([]unix.PollFd{{Fd: int32(launch.Report), Events: unix.POLLIN}}, -1) //nolint:errcheck // it is read
		_, fd, _ = spawn.ReadReport(launch.Report, make([]byte, 64))
	}
	t.Cleanup(func() { unix.Close(fd) })
	return pid, pidfd, fd
}

// A program binds twice. A supervisord that dies has received the first call, and the next one gets the second.
func TestCallThatADeadSupervisordHadReceivedIsAnswered(t *testing.T) {
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip(err)
	}
	socket, address := listening(t)
	path := filepath.Join(t.TempDir(), "result")
	must.Do(t, unix.Mkfifo(path+".go", 0o600))
	script := fmt.Sprintf(`
import os, socket, threading
def bind():
    s = socket.socket(); s.bind(('127.0.0.1', %d)); got.append(os.fstat(s.fileno()).st_ino); keep.append(s)
got, keep = [], []
one = threading.Thread(target=bind); one.start()
open('%[2]s.go').read()
bind(); one.join()
open('%[2]s.new', 'w').write(' '.join(map(str, got))); os.rename('%[2]s.new', '%[2]s')
`, address.At.Port(), path)
	null := must.Get(unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(null)
	command := []string{python, "-S", "-c", script}
	pid, pidfd, fd := withFilter(t, spawn.Execution{Command: command, Files: []int{null, 1, 2}})
	unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000) //nolint:errcheck // it is received
	_ = must.Get(receive(fd))(t)                                         // and nothing more: it dies
	must.Do(t, os.WriteFile(path+".go", []byte("go"), 0o600))
	adopted := true
	a := Answerer{FD: fd, Listeners: offer(address, socket), Looks: new(foreign.Looks), Key: t,
		Told:    func(err error) { t.Error(err) },
		Adopted: &adopted, Processes: func() []int { return []int{pid} }}
	for ended := false; !ended; { // before Linux 6.11 a process has its filter until it is reaped
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(pidfd), Events: unix.POLLIN}}
		unix.Poll(poll, -1) //nolint:errcheck // it is looked at again
		a.Answer()
		ended = poll[1].Revents != 0
	}
	inode := must.Get(ownInode(socket))(t)
	text, err := os.ReadFile(path)
	if want := fmt.Sprintf("%d %[1]d", inode); err != nil || string(text) != want {
		t.Errorf("the program got %q, %v, want %q", text, err, want)
	}
}

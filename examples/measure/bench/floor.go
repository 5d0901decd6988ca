package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/clock"
	"example.org/supervisord/examples/measure/kit"
)

// floor does by itself what lies between HUP and TERM, with the same worker, beside the same client: fork, exec, wait
// for READY=1, kill. It shows what that takes on this machine without a supervisor.
type floor struct {
	listener   *net.TCPListener
	notify     *net.UnixConn   // where the worker says READY=1
	stamps     string          // the file
	main, term []time.Duration // from before the fork to main, and from READY=1 to TERM
}

func newFloor(dir string) (*floor, error) {
	dir, err := os.MkdirTemp(dir, "floor")
	if err != nil {
		return nil, err
	}
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return &floor{listener: listener, notify: notify, stamps: filepath.Join(dir, "floor")}, nil
}

func (f *floor) close() {
	f.listener.Close() //nolint:errcheck // nobody connects
	f.notify.Close()   //nolint:errcheck // nobody sends
}

// measure starts a worker and ends it, and records how long that took. generation is a number that was not used before.
func (f *floor) measure(worker string, generation int) error {
	socket, err := f.listener.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	w := exec.Command(worker)
	w.ExtraFiles = []*os.File{socket}
	w.Env = append(os.Environ(), "NOTIFY_SOCKET="+f.notify.LocalAddr().String(), "BENCH_STAMPS="+f.stamps,
		"SUPERVISORD_GENERATION="+strconv.Itoa(generation))
	began := clock.Monotonic()
	if err := w.Start(); err != nil {
		return err
	}
	f.notify.SetReadDeadline(time.Now().Add(kit.Patience)) //nolint:errcheck // only a hang would show it
	if _, err = f.notify.Read(make([]byte, 64)); err == nil {
		err = w.Process.Signal(unix.SIGTERM)
	}
	if err != nil {
		w.Process.Kill() //nolint:errcheck // it may have ended
	}
	if err := errors.Join(err, w.Wait()); err != nil {
		return err
	}
	s, err := readStamps(f.stamps)
	if err != nil {
		return err
	}
	f.main = append(f.main, s[generation].main-began)
	f.term = append(f.term, s[generation].term-s[generation].ready)
	return nil
}

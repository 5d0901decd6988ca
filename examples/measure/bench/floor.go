package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// floor does by itself what lies between HUP and TERM, with the same worker and beside the same client: fork, exec, wait for
// READY=1, kill. It is what this machine takes for that now, without any supervisor.
type floor struct {
	listener net.Listener
	socket   *os.File      // the listener's, for the worker
	ear      *net.UnixConn // where the worker says READY=1
	path     string        // of the stamps
	boot     spread        // from before the fork to READY=1
	term     spread        // from READY=1 to TERM
}

func (b *bench) newFloor(dir string) (f *floor, err error) {
	f = &floor{path: filepath.Join(dir, "floor")}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return f, err
	}
	if f.socket, err = f.listener.(*net.TCPListener).File(); err != nil {
		return f, err
	}
	f.ear, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "ear"), Net: "unixgram"})
	return f, err
}

func (f *floor) close() {
	if f.listener != nil {
		f.listener.Close()
	}
	if f.socket != nil {
		f.socket.Close()
	}
	if f.ear != nil {
		f.ear.Close()
	}
}

// once starts a worker and ends it, and writes down how long that took. g is a number that was not used before.
func (b *bench) once(f *floor, g int) error {
	worker := exec.Command(b.light)
	worker.ExtraFiles = []*os.File{f.socket}
	worker.Env = append(os.Environ(), "NOTIFY_SOCKET="+f.ear.LocalAddr().String(), "BENCH_STAMPS="+f.path, "SUPERVISORD_GENERATION="+strconv.Itoa(g))
	began := monotonic()
	if err := b.children.start(worker); err != nil {
		return err
	}
	var buf [64]byte
	f.ear.SetReadDeadline(time.Now().Add(patience)) //nolint:errcheck // without it the read would wait for ever
	_, err := f.ear.Read(buf[:])
	if err == nil {
		err = unix.Kill(worker.Process.Pid, unix.SIGTERM)
	}
	if err != nil {
		worker.Process.Kill() //nolint:errcheck // it may have ended
		worker.Wait()         //nolint:errcheck // the first error counts
		return err
	}
	if err := worker.Wait(); err != nil {
		return err
	}
	s, err := readStamps(f.path)
	if err != nil {
		return err
	}
	f.boot = append(f.boot, time.Duration(s[g].ready-began))
	f.term = append(f.term, time.Duration(s[g].term-s[g].ready))
	return nil
}

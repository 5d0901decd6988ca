package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long anything that is waited for may take.
const patience = 3 * time.Minute

// line is one line of the log, with the moment at which it came out of the pipe.
type line struct {
	Level      string
	Message    string `json:"msg"`
	Generation int
	Reason     string
	Step       string
	at         int64
}

// Sentences of supervisord's log.
const (
	serves  = "new generation serves"
	gone    = "generation is gone"
	failing = "new generation failed"
	killing = "worker is killed"
	ready   = "worker is ready"
)

// master is a supervisord that was started for a measurement.
type master struct {
	cmd     *exec.Cmd
	pid     int
	address string
	lines   chan line
	reading sync.WaitGroup
	killed  int // workers that were killed, by what was read so far
	failed  int // generations that failed, likewise
}

// startMaster starts supervisord with one program, "w". The text is the program's table after its command; address is of
// its only listener. Its files are in dir, its sockets on a tmpfs, as they are in /run.
func (b *bench) startMaster(dir, program, listener string) (*master, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("[supervisor]\nlog_format = \"json\"\nruntime_dir = %q\n\n[program.w]\n%s\n\n[[program.w.listen]]\nname = \"http\"\naddress = %q\n%s\n",
		b.runtime, program, address, listener)
	path := filepath.Join(dir, "bench.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	m := &master{cmd: exec.Command(b.supervisord, "-c", path), address: address, lines: make(chan line, 1<<16)}
	log, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	m.cmd.Stderr = theirs
	if err := b.children.start(m.cmd); err != nil {
		log.Close()
		return nil, err
	}
	m.pid = m.cmd.Process.Pid
	m.reading.Go(func() { m.read(log) })
	return m, nil
}

func (m *master) read(log io.ReadCloser) {
	defer log.Close()
	defer close(m.lines)
	in := bufio.NewScanner(log)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l line
		if json.Unmarshal(in.Bytes(), &l) != nil {
			l.Message = in.Text()
		}
		l.at = monotonic()
		m.lines <- l
	}
}

// await reads the log until a line is the one that is waited for.
func (m *master) await(message string, generation int) (line, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	var last line
	for {
		select {
		case l, ok := <-m.lines:
			if !ok {
				return l, fmt.Errorf("supervisord ended while %q was waited for; the last it said was %q", message, last.Message)
			}
			m.count(l)
			if l.Message == message && (generation == 0 || l.Generation == generation) {
				return l, nil
			}
			last = l
		case <-late.C:
			return line{}, fmt.Errorf("no %q of generation %d within %s; the last line was %q", message, generation, patience, last.Message)
		}
	}
}

func (m *master) count(l line) {
	switch l.Message {
	case killing:
		m.killed++
	case failing:
		m.failed++
		fmt.Fprintf(os.Stderr, "bench: generation %d failed: %s: %s\n", l.Generation, l.Step, l.Reason)
	}
}

// drain takes what the log has said so far and returns how often it said the message.
func (m *master) drain(message string) int {
	n := 0
	for {
		select {
		case l, ok := <-m.lines:
			if !ok {
				return n
			}
			m.count(l)
			if l.Message == message {
				n++
			}
		default:
			return n
		}
	}
}

// hup reloads and returns when that was asked for.
func (m *master) hup() (int64, error) {
	at := monotonic()
	return at, unix.Kill(m.pid, unix.SIGHUP)
}

// replace reloads and waits until generation n serves and the one before is gone.
func (m *master) replace(n int) error {
	if _, err := m.hup(); err != nil {
		return err
	}
	if _, err := m.await(serves, n); err != nil {
		return err
	}
	_, err := m.await(gone, n-1)
	return err
}

// stop ends supervisord and returns the CPU time that it used in its whole life: without its children's, which wait4 would add.
func (m *master) stop() (time.Duration, error) {
	if err := unix.Kill(m.pid, unix.SIGTERM); err != nil {
		return 0, err
	}
	late := time.AfterFunc(patience, func() { unix.Kill(m.pid, unix.SIGKILL) })
	defer late.Stop()
	go discard(m.lines)
	for {
		err := unix.Waitid(unix.P_PID, m.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, err
		}
	}
	used, err := cpuOf(m.pid)
	m.reading.Wait()
	return used, errors.Join(err, m.cmd.Wait())
}

func discard(lines <-chan line) {
	for range lines {
	}
}

// abandon ends supervisord, if a measurement was broken off, so that nothing is left behind.
func (m *master) abandon() {
	if m.cmd.ProcessState == nil {
		m.stop() //nolint:errcheck // the first error counts
	}
}

// freeAddress is an address that was free a moment ago.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// reloader sends HUPs at a steady pace until it is stopped.
type reloader struct {
	stop chan struct{}
	done chan struct{}
	sent int
}

func (m *master) reloadEvery(d time.Duration) *reloader {
	r := &reloader{stop: make(chan struct{}), done: make(chan struct{})}
	tick := time.NewTicker(d)
	go func() {
		defer close(r.done)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if m.cmd.Process.Signal(syscall.SIGHUP) == nil {
					r.sent++
				}
			case <-r.stop:
				return
			}
		}
	}()
	return r
}

func (r *reloader) end() int {
	close(r.stop)
	<-r.done
	return r.sent
}

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

func (b *bench) measureRivals() error {
	return errors.Join(b.measurePlain(), b.measureStartServer())
}

// measurePlain restarts the example worker as one does without a supervisor: TERM, wait, start. The worker waits politely for
// idle connections, which is no use here: it is told not to.
func (b *bench) measurePlain() error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	start := func() (*exec.Cmd, error) {
		w := exec.Command(b.hello, "-address", address, "-linger", "1ms")
		return w, b.children.start(w)
	}
	w, err := start()
	if err != nil {
		return err
	}
	defer func() {
		w.Process.Kill() //nolint:errcheck // it may have ended
		w.Wait()         //nolint:errcheck // likewise
	}()
	if err := untilAnswered(address); err != nil {
		return err
	}
	ended := make(chan course, 1)
	rate, d := 500, time.Duration(b.less(10, 4))*time.Second
	go func() { ended <- steady("http://"+address+"/healthz", rate, d) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case c := <-ended:
			b.row(fmt.Sprintf("no supervisor, kill and start each second, %d/s, p50 / p99 / max", rate), "", c.String(), nothing)
			return nil
		case <-tick.C:
			w.Process.Signal(unix.SIGTERM) //nolint:errcheck // it is our own child
			w.Wait()                       //nolint:errcheck // what it returns does not matter
			if w, err = start(); err != nil {
				<-ended
				return err
			}
		}
	}
}

// untilAnswered waits until somebody answers: there is no other event to wait for here.
func untilAnswered(address string) error {
	late := time.Now().Add(patience)
	for tick := time.Tick(time.Millisecond); ; <-tick {
		c := caller{address: address}
		_, err := c.call("/healthz")
		if err == nil {
			return nil
		}
		if time.Now().After(late) {
			return err
		}
	}
}

// measureStartServer reloads Perl's start_server, where it is installed, as watchReloads does supervisord. It waits for a
// second before it takes a worker for ready; that is its default.
func (b *bench) measureStartServer() error {
	path, err := exec.LookPath("start_server")
	if err != nil {
		b.row("start_server", "", "not installed", nothing)
		return nil
	}
	dir, err := b.folder()
	if err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "stamps")
	cmd := exec.Command(path, "--port", address, "--", b.light)
	cmd.Env = append(cmd.Environ(), "BENCH_STAMPS="+file)
	if err := b.children.start(cmd); err != nil {
		return err
	}
	defer func() {
		cmd.Process.Signal(unix.SIGTERM) //nolint:errcheck // it is our own child
		cmd.Wait()                       //nolint:errcheck // it says how it was ended
	}()
	return b.watchStartServer(cmd.Process.Pid, address, file)
}

func (b *bench) watchStartServer(pid int, address, file string) error {
	if err := untilAnswered(address); err != nil {
		return err
	}
	n := b.less(20, 3)
	seen := newAnswers()
	client := chat(address, 1, seen.seen)
	defer client.end()
	if err := b.children.rest(2 * time.Second); err != nil { // the first worker has been alive for its second
		return err
	}
	var hups []int64
	before, err := cpuOf(pid)
	if err != nil {
		return err
	}
	for range n {
		hups = append(hups, monotonic())
		if err := unix.Kill(pid, unix.SIGHUP); err != nil {
			return err
		}
		if err := b.children.rest(1500 * time.Millisecond); err != nil { // it says nowhere that it is done
			return err
		}
	}
	after, err := cpuOf(pid)
	if err != nil {
		return err
	}
	client.end()
	s, err := readStamps(file)
	if err != nil {
		return err
	}
	var toFirst, toTerm spread
	for i, at := range hups { // its generations begin with 1
		if first := seen.first[i+2]; first > 0 {
			toFirst = append(toFirst, time.Duration(first-at))
		}
		if old := s[i+1]; old != nil && old.term > 0 {
			toTerm = append(toTerm, time.Duration(old.term-at))
		}
	}
	b.row(fmt.Sprintf("start_server (Perl), %d reloads, HUP → first answer of the new generation, p50 / p99 / max", n), "", toFirst.String(), nothing)
	b.row("start_server: HUP → the old worker has TERM", "", toTerm.String(), nothing)
	b.row("start_server: CPU per reload, one worker", "", short((after-before)/time.Duration(n)), nothing)
	return nil
}

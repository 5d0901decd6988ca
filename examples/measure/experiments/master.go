package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long anything that is waited for may take.
const patience = time.Minute

// Sentences of supervisord's log.
const (
	serves  = "new generation serves"
	gone    = "generation is gone"
	failing = "new generation failed"
	killing = "worker is killed"
)

// line is one line of the log, with the moment at which it came out of the pipe.
type line struct {
	Message               string `json:"msg"`
	Program, Step, Reason string
	Generation            int
	at                    time.Time
}

// journal is the log of a master, as far as it was read.
type journal struct {
	mu    sync.Mutex
	lines []line
	more  chan struct{} // closed when a line was added, or there will be none
	ended bool
}

func (j *journal) read(log io.ReadCloser) {
	defer log.Close()
	in := bufio.NewScanner(log)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l line
		if json.Unmarshal(in.Bytes(), &l) != nil {
			l.Message = in.Text()
		}
		l.at = time.Now()
		j.add(l, false)
	}
	j.add(line{}, true)
}

func (j *journal) add(l line, ended bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended = ended; !ended {
		j.lines = append(j.lines, l)
	}
	close(j.more)
	j.more = make(chan struct{})
}

// since returns the lines from number n on.
func (j *journal) since(n int) (lines []line, ended bool, more chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines[n:], j.ended, j.more
}

func (j *journal) length() int {
	lines, _, _ := j.since(0)
	return len(lines)
}

func (j *journal) count(message string) int {
	n := 0
	lines, _, _ := j.since(0)
	for _, l := range lines {
		if l.Message == message {
			n++
		}
	}
	return n
}

// await waits for the first line from number n on that is the one; a generation that fails ends the wait.
func (j *journal) await(ctx context.Context, n int, what string, is func(line) bool) (line, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no %q within %s", what, patience))
	defer cancel()
	for {
		lines, ended, more := j.since(n)
		for _, l := range lines {
			if is(l) {
				return l, nil
			}
			if l.Message == failing {
				return l, fmt.Errorf("generation %d of %s failed: %s: %s", l.Generation, l.Program, l.Step, l.Reason)
			}
		}
		if ended {
			return line{}, fmt.Errorf("supervisord ended while %q was waited for%s", what, lastWords(lines))
		}
		select {
		case <-more:
		case <-ctx.Done():
			return line{}, context.Cause(ctx)
		}
	}
}

func lastWords(lines []line) string {
	if len(lines) == 0 {
		return ""
	}
	return ": " + lines[len(lines)-1].Message
}

// master is a supervisord that was started for an experiment.
type master struct {
	cmd     *exec.Cmd
	journal journal
	reading sync.WaitGroup
}

// program is one table of the configuration.
type program struct {
	name    string
	command []string
	workers string
	ready   string // "": notify
	listen  []listen
}

type listen struct{ name, address string }

// web is a program with one listener, "http".
func web(command []string, workers, address string) program {
	return program{name: "web", command: command, workers: workers, listen: []listen{{"http", address}}}
}

// String is the table. With one HUP after the other many generations drain at a time; with the default of max_draining most
// HUPs would wait and become one reload.
func (p program) String() string {
	var t strings.Builder
	fmt.Fprintf(&t, "[program.%s]\nworkers = %s\nstop = { timeout = \"30s\", max_draining = 100 }\ncommand = [", p.name, p.workers)
	for _, word := range p.command {
		fmt.Fprintf(&t, "%q, ", word)
	}
	ready := p.ready
	if ready == "" {
		ready = `method = "notify"`
	}
	fmt.Fprintf(&t, "]\nready = { timeout = \"30s\", %s }\n", ready)
	for _, l := range p.listen {
		fmt.Fprintf(&t, "[[program.%s.listen]]\nname = %q\naddress = %q\n", p.name, l.name, l.address)
	}
	return t.String()
}

// startMaster starts supervisord and waits until all programs serve.
func startMaster(ctx context.Context, supervisord, dir string, programs ...program) (*master, error) {
	dir, err := os.MkdirTemp(dir, "run")
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("[supervisor]\nlog_format = \"json\"\nruntime_dir = %q\n", dir)
	for _, p := range programs {
		text += "\n" + p.String()
	}
	path := filepath.Join(dir, "supervisord.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	log, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	m := &master{cmd: exec.Command(supervisord, "-c", path)}
	m.journal.more = make(chan struct{})
	m.cmd.Stderr = theirs
	err = m.cmd.Start()
	theirs.Close() // or the log would never end
	if err != nil {
		log.Close()
		return nil, err
	}
	m.reading.Go(func() { m.journal.read(log) })
	return m, m.awaitAll(ctx, 0, len(programs))
}

// awaitAll waits until so many programs have said, from line n on, that a new generation serves.
func (m *master) awaitAll(ctx context.Context, n, programs int) error {
	seen := map[string]bool{}
	_, err := m.journal.await(ctx, n, serves, func(l line) bool {
		if l.Message == serves {
			seen[l.Program] = true
		}
		return len(seen) == programs
	})
	if err != nil {
		m.stop()
	}
	return err
}

// deploy is one redeploy.
type deploy struct{ hup, served time.Time }

// redeploy reloads and waits until the new generation serves.
func (m *master) redeploy(ctx context.Context) (deploy, error) {
	n, d := m.journal.length(), deploy{hup: time.Now()}
	if err := m.hup(); err != nil {
		return d, err
	}
	l, err := m.journal.await(ctx, n, serves, func(l line) bool { return l.Message == serves })
	d.served = l.at
	return d, err
}

func (m *master) hup() error { return m.cmd.Process.Signal(unix.SIGHUP) }

// settle waits until only one generation of the only program is left.
func (m *master) settle(ctx context.Context) error {
	_, err := m.journal.await(ctx, 0, gone, func(line) bool { return m.journal.count(gone) >= m.journal.count(serves)-1 })
	return err
}

// stop ends supervisord and its workers; calling it again does nothing. Asked twice, supervisord stops at once: who broke the
// run off does not want to wait for idle connections.
func (m *master) stop() {
	if m.cmd.ProcessState != nil {
		return
	}
	end(m.cmd)
	m.reading.Wait()
}

// end asks a process to go, asks again, and kills it when that did not help.
func end(cmd *exec.Cmd) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait() //nolint:errcheck // that it has ended is enough
	}()
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGTERM, unix.SIGKILL} {
		cmd.Process.Signal(sig) //nolint:errcheck // it may have ended
		t := time.NewTimer(5 * time.Second)
		select {
		case <-ended:
			t.Stop()
			return
		case <-t.C:
		}
	}
	<-ended
}

// each does something at a steady pace until ctx ends; it is the caller's goroutine.
func each(ctx context.Context, d time.Duration, do func() error) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := do(); err != nil {
				return err
			}
		}
	}
}

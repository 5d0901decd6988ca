package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bench is what a run works with.
type bench struct {
	size sizes
	out  string // where the report goes
	dir  string // everything else, removed at the end
	bin  binaries
}

// binaries are the paths of what is run.
type binaries struct {
	Self, Supervisord, Hello, GRPC, Both string
}

// newBench makes this process the one that gets those whose parent has gone, so that none is left behind.
func newBench(size sizes, bin binaries, out string) (*bench, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot become the reaper of what is started: %w", err)
	}
	dir, err := os.MkdirTemp("", "experiments")
	return &bench{size: size, out: out, dir: dir, bin: bin}, err
}

// build makes what is run, into dir.
func build(ctx context.Context, dir string) (binaries, error) {
	self, err := os.Executable()
	if err != nil {
		return binaries{}, err
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "example.org/supervisord").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("cannot find the source: %w", err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	bin := binaries{self, at("supervisord"), at("hello"), at("grpc"), at("both")}
	for to, from := range map[string]string{
		bin.Supervisord: "cmd/supervisord", bin.Hello: "examples/hello", bin.GRPC: "examples/grpc", bin.Both: "examples/json-vs-grpc",
	} {
		if text, err := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(strings.TrimSpace(string(root)), from), "-trimpath", "-o", to, ".").CombinedOutput(); err != nil {
			return bin, fmt.Errorf("cannot build %s: %w\n%s", from, err, text)
		}
	}
	return bin, nil
}

// close ends what is left, which should be nothing, and says so if there was something.
func (b *bench) close() error {
	var left []string
	for _, pid := range children() {
		left = append(left, fmt.Sprintf("%d (%s)", pid, commandOf(pid)))
		unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // it may have ended meanwhile
		unix.Wait4(pid, nil, 0, nil) //nolint:errcheck // likewise
	}
	err := os.RemoveAll(b.dir)
	if len(left) > 0 {
		return errors.Join(err, fmt.Errorf("processes were left behind and killed: %s", strings.Join(left, ", ")))
	}
	return err
}

// children are the processes whose parent this one is, zombies not counted.
func children() []int {
	var pids []int
	paths, _ := filepath.Glob("/proc/self/task/*/children")
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && !zombie(pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, found := bytes.Cut(text, []byte(") "))
	return err != nil || !found || state[0] == 'Z'
}

func commandOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}

// machineLoad is the one-minute load average: what else the machine was doing.
func machineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

// freeAddress is an address on loopback that was free a moment ago.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// pause waits for d; the error says that the run was broken off.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// untilAnswered waits until somebody accepts at address: there is no event to wait for from outside.
func untilAnswered(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp4", address)
		if err == nil {
			return conn.Close()
		}
		if pause(ctx, time.Millisecond) != nil {
			return fmt.Errorf("nobody accepts at %s: %w", address, err)
		}
	}
}

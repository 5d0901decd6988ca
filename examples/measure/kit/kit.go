// Package kit has what bench and experiments share besides internal/lab: building and configuring what they measure,
// ab, and the figures of the machine.
package kit

import (
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
)

// Patience is the longest wait for anything.
const Patience = 3 * time.Minute

// Build builds programs into dir, without cgo as scripts/install does, each named after its directory:
// "cmd/supervisord", "examples/hello" of the source tree.
func Build(ctx context.Context, dir string, packages ...string) error {
	root, err := SourceTree(ctx)
	if err != nil {
		return err
	}
	for _, name := range packages {
		if err := build(ctx, filepath.Join(root, name), filepath.Join(dir, filepath.Base(name)), "."); err != nil {
			return err
		}
	}
	return nil
}

// BuildTool builds a program of another module that the examples require.
func BuildTool(ctx context.Context, path, name string) error {
	root, err := SourceTree(ctx)
	if err != nil {
		return err
	}
	return build(ctx, filepath.Join(root, "examples"), path, name)
}

func build(ctx context.Context, from, path, name string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-C", from, "-o", path, name)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s: %w\n%s", path, err, out)
	}
	return nil
}

// SourceTree returns the root of the source tree.
func SourceTree(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "example.org/supervisord").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the source tree: %w", err)
	}
	return strings.TrimSpace(string(root)), nil
}

// FreeAddress returns an address on loopback that was free a moment ago; "" if no port is free.
func FreeAddress() string {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return ""
	}
	defer ln.Close()
	return ln.Addr().String()
}

// untilAccepts waits until a server accepts connections at an address: no event tells.
func untilAccepts(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp4", address)
		if err == nil {
			return conn.Close()
		}
		if Pause(ctx, time.Millisecond) != nil {
			return fmt.Errorf("nothing accepts at %s: %w", address, err)
		}
	}
}

// Pause waits. The error says that the run was interrupted.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Each calls do at a steady pace until ctx ends or do fails.
func Each(ctx context.Context, every time.Duration, do func() error) error {
	tick := time.NewTicker(every)
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

// During calls do at a steady pace until work returns.
func During(ctx context.Context, every time.Duration, do, work func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- Each(ctx, every, do) }()
	err := work()
	cancel()
	return errors.Join(err, <-ended)
}

// LoadAverage returns the load of the last minute: what else the machine was doing.
func LoadAverage() string { return firstWord("/proc/loadavg") }

// Others returns how many CPUs the machine uses in a second in which the caller does nothing.
func Others(ctx context.Context) string {
	busy := func() (sum int) {
		// cpu user nice system idle iowait irq softirq steal guest guest_nice, in hundredths of a second
		text, _ := os.ReadFile("/proc/stat")
		line, _, _ := strings.Cut(string(text), "\n")
		for i, field := range strings.Fields(line) {
			n, _ := strconv.Atoi(field)
			if i >= 1 && i <= 8 && i != 4 && i != 5 {
				sum += n
			}
		}
		return sum
	}
	before, began := busy(), time.Now()
	Pause(ctx, time.Second) //nolint:errcheck // the caller notices
	return fmt.Sprintf("%.1f", float64(busy()-before)/100/time.Since(began).Seconds())
}

// Kernel returns the kernel's release.
func Kernel() string { return firstWord("/proc/sys/kernel/osrelease") }

func firstWord(path string) string {
	text, _ := os.ReadFile(path)
	word, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if word == "" {
		return "?"
	}
	return word
}

// Ratio returns a / b with two digits.
func Ratio(a, b time.Duration) string {
	if b <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

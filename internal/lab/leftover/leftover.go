// Package leftover has the TestMain of packages whose tests open descriptors, write files, or start goroutines and
// processes: the package fails if one of them is left when the tests have passed. A package that uses it has
//
//	func TestMain(m *testing.M) { leftover.Main(m) }
//
// after what makes its binary something else, if a test executes it.
package leftover

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience is how long what is about to end may take: a goroutine that has said its last word, a process that was
// killed.
const patience = 30 * time.Second

// Main runs the tests and exits.
func Main(m *testing.M) { os.Exit(Run(m.Run)) }

// Run runs the tests and returns the exit code: 1 if they have passed and something is left.
func Run(run func() int) int {
	return Files(func() int {
		before := descriptors()
		code := run()
		if code != 0 || fuzzes() {
			return code // what a failed test has left says nothing, and a fuzzer has goroutines of its own
		}
		http.DefaultClient.CloseIdleConnections()
		end := time.Now().Add(patience)
		for ; ; time.Sleep(time.Millisecond) {
			all := slices.Concat(opened(before), goroutines(), children())
			if len(all) == 0 {
				return 0
			}
			if time.Now().After(end) {
				fmt.Fprintf(os.Stderr, "the tests have left:\n%s\n", strings.Join(all, "\n"))
				return 1
			}
		}
	})
}

func fuzzes() bool {
	fuzz := flag.Lookup("test.fuzz")
	return fuzz != nil && fuzz.Value.String() != ""
}

// Files runs the tests with a directory of their own for temporary files, sockets among them, in which every user may
// write, as in /tmp. It returns the exit code: 1 if they have passed and a file is left there.
func Files(run func() int) int {
	dir, err := os.MkdirTemp("", "t") // short, because the paths of sockets are
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o777|os.ModeSticky), os.Setenv("TMPDIR", dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leftover:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	code := run()
	if left, _ := filepath.Glob(dir + "/*"); code == 0 && !fuzzes() && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "the tests have left the files %q\n", left)
		return 1
	}
	return code
}

// descriptors are what this process has open, by number.
func descriptors() map[string]string {
	links := map[string]string{}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // not that of ReadDir
			links[e.Name()] = to
		}
	}
	return links
}

// opened lists the descriptors that were not open before, except for those of Go's runtime.
func opened(before map[string]string) (list []string) {
	for fd, to := range descriptors() {
		if before[fd] != to && to != "anon_inode:[eventpoll]" && to != "anon_inode:[eventfd]" {
			list = append(list, "descriptor "+fd+": "+to)
		}
	}
	return list
}

// lasting are goroutines that Go never ends: this one, and the one that receives signals.
var lasting = []string{"leftover.goroutines(", "os/signal.signal_recv("}

// goroutines lists all but the lasting ones.
func goroutines() (list []string) {
	stacks := make([]byte, 1<<20)
	for one := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if !slices.ContainsFunc(lasting, func(name string) bool { return strings.Contains(one, name) }) {
			list = append(list, one)
		}
	}
	return list
}

// children lists the processes that this one has started or inherited.
func children() (list []string) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		pids, _ := os.ReadFile(task)
		for _, pid := range strings.Fields(string(pids)) {
			stat, _ := os.ReadFile("/proc/" + pid + "/stat")
			list = append(list, fmt.Sprintf("process %.60s", stat))
		}
	}
	return list
}

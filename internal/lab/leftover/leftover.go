// Package leftover has the TestMain of packages whose tests open descriptors or start goroutines and processes: the
// package fails if one of them is left when the tests have passed. A package that uses it has
//
//	func TestMain(m *testing.M) { leftover.Main(m) }
package leftover

import (
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
	before := descriptors()
	code := run()
	if fuzz := flag.Lookup("test.fuzz"); code != 0 || fuzz != nil && fuzz.Value.String() != "" {
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

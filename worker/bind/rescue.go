package bind

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
)

// A supervisord that is killed between the receipt of a call and its answer leaves a caller that waits: the kernel
// gives the call to nobody else. Its number is not known either, but numbers ascend, so it is below that of the next
// call. One worker's calls are answered one after another: there is one such call at most for each death.

// rescueDepth is how many numbers are tried. Each takes the kernel less than a microsecond.
const rescueDepth = 4096

// rescue answers the call that a dead supervisord had received before next, if there is one, when all that waits was
// answered.
func (w Answerer) rescue(next uint64) {
	for id := next - 1; next-id <= rescueDepth; id-- {
		n := notification{id: id}
		if !n.valid(w.FD) {
			continue
		}
		if !w.identify(&n) {
			n.pass(w.FD)
			continue
		}
		w.answer(&n)
	}
}

// identify finds the thread that waits for the answer to a call, and what it calls with.
func (w Answerer) identify(n *notification) bool {
	ctx, cancel := context.WithTimeoutCause(context.Background(), lookTimeout, errDelayed)
	defer cancel()
	for range rescueLooks {
		waiting, stuck := foreign.Look(ctx, w.Looks, w.Key, w.waiting)
		switch more, _, err := pending(w.FD); {
		case err != nil || stuck != nil:
			return false
		case more: // some of those have not been received yet
			if m, err := receive(w.FD); err == nil {
				w.answer(&m)
			}
		case len(waiting) != 1:
			return false
		default:
			waiting[0].id = n.id
			*n = waiting[0]
			return true
		}
	}
	return false
}

// rescueLooks is how often identify looks at a worker that calls all the time.
const rescueLooks = 100

// waiting lists the threads of the worker's processes that are in one of our calls: proc_pid_syscall(5).
func (w Answerer) waiting() (all []notification) {
	for _, pid := range w.Processes() {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid)) //nolint:errcheck // the pattern is right
		for _, file := range files {
			tid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			text, _ := proc.ReadFile(tid, "syscall") //nolint:errcheck // a thread that has ended
			if n, is := ours(string(text)); is {
				n.tid = uint32(tid)
				all = append(all, n)
			}
		}
	}
	return all
}

// ours makes a notification of the call in which a thread is. is reports whether it is one that the filter tells of.
func ours(text string) (n notification, is bool) {
	c, is := proc.ParseCall(text)
	n.number, n.args = int32(c.Number), c.Args
	for _, m := range machines() {
		if n.arch = m.arch; is && operationOf(n.arch, n.number) != other {
			return n, operationOf(n.arch, n.number) != socketCall || n.args[0] == socketcallBind || n.args[0] == socketcallListen
		}
	}
	return n, false
}

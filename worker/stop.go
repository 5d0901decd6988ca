package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/worker/life"
	"example.org/supervisord/worker/ready"
)

// Signal sends sig to the worker process alone (group false) or to its whole process group. After the end of the worker
// it does nothing and returns nil. Before the exec Signal keeps the signal until the command runs, because the new
// process would react otherwise; KILL waits only for the fork. If the first process has ended during a stop, the
// processes that it left get the signal: see Stop. Signal never waits.
func (w *Worker) Signal(sig syscall.Signal, group bool) error {
	return w.send(Pending{Signal: sig, Group: group})
}

// Stop is Signal for a step of the stop plan. When the first process has ended, the processes that it started get the
// last step, unless they had it already, and the steps that follow; the worker has ended when none is left. Without a
// Stop before, or after KILL, the worker kills them at once.
func (w *Worker) Stop(sig syscall.Signal, group bool) error {
	return w.send(Pending{Signal: sig, Group: group, Stops: true})
}

// send delivers a signal, or keeps it until there is a process, or until that has executed the command:
//
//	no process   kept in Pending, KILL too, which forked delivers
//	forked       kept in Pending until spawned; KILL at once
//	running      kill(2) to the group, or pidfd_send_signal(2) (Linux 5.1) to the process alone
//	stopped      tgkill(2) to the first thread of each
//	rest         kept in Due until lookAtRest, which sends it by the pidfd of each top; KILL to the group at once
//	ended        dropped
func (w *Worker) send(d Pending) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	sig := d.Signal
	switch {
	case w.process.ended:
		return nil
	case w.process.PID == 0, !w.process.Running && sig != syscall.SIGKILL:
		w.process.Pending = append(w.process.Pending, d)
		return nil
	}
	w.endsProbe(sig)
	return w.deliver(d)
}

// forked takes over the process, and delivers a KILL that came before there was one. w.mu is held.
func (w *Worker) forked(pid, pidfd int) {
	w.process.PID, w.process.pidfd, w.process.child = pid, pidfd, true
	w.watchChild()
	for _, d := range w.process.Pending {
		if d.Signal == syscall.SIGKILL {
			w.deliver(d) //nolint:errcheck // no caller waits for the answer any more
		}
	}
}

// deliver sends a signal to a process that was not reaped. w.mu is held, so that it is not reaped meanwhile.
func (w *Worker) deliver(d Pending) error {
	kill := d.Signal == syscall.SIGKILL
	if kill {
		w.process.Killed = true
	}
	if kill && d.Group {
		w.launcher.groups.Kill(w.process.Group)
	}
	if kill {
		w.killAgain(d)
	} else if d.Stops {
		w.process.Stop = d
	}
	if w.process.Rest != nil {
		w.deliverRest(d)
		return nil
	}
	var errGroup, errAlone error
	owned := w.process.child || w.pinned()
	grouped := d.Group && owned
	if owned && w.deliverStopped(d.Signal, grouped) {
		return nil
	}
	if grouped {
		errGroup = unix.Kill(-w.process.PID, d.Signal)
	}
	if !grouped || kill { // right after the fork there is no group yet
		errAlone = w.deliverAlone(d.Signal)
	}
	for _, err := range []error{errGroup, errAlone} {
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("cannot send %s to process %d: %w", unix.SignalName(d.Signal), w.process.PID, err)
		}
	}
	return nil
}

// deliverStopped sends a signal to processes that SIGSTOP has stopped: to the worker's first process, or to all of its
// group. It reports whether they were stopped; otherwise nothing was sent. Each gets the signal in its first thread,
// unless that one blocks it, as one that runs does. The kernel would leave the signal to the thread that continues
// first (complete_signal in kernel/signal.c), and the first thread would sleep on: with Python, which runs handlers
// there only, or in pause(2). A stopped process forks no other one meanwhile. w.mu is held, and PID is the worker's.
func (w *Worker) deliverStopped(sig syscall.Signal, group bool) bool {
	first := w.process.PID
	if sig == unix.SIGKILL || sig == unix.SIGSTOP || sig == unix.SIGCONT || !stopped(first) {
		return false
	}
	pids := []int{first}
	if group {
		pids = slices.DeleteFunc(proc.PIDs(), func(pid int) bool {
			of, err := unix.Getpgid(pid)
			return err != nil || of != first
		})
	}
	if slices.ContainsFunc(pids, func(pid int) bool { return !stopped(pid) }) {
		return false
	}
	for _, pid := range pids {
		if proc.Blocks(pid, sig) {
			unix.Kill(pid, sig) //nolint:errcheck // KILL may have ended it
		} else {
			unix.Tgkill(pid, pid, sig) //nolint:errcheck // likewise
		}
	}
	return true
}

// stopped reports whether a signal has stopped a process.
func stopped(pid int) bool {
	stat, err := proc.ReadStat(pid)
	return err == nil && stat.State == 'T'
}

// killAgainAfter is when a worker that is still there gets KILL once more: the kernel may have refused the first one,
// for example while the worker executed a setuid program.
const killAgainAfter = time.Second

// killAgain repeats d until the worker has ended. w.mu is held.
func (w *Worker) killAgain(d Pending) {
	if w.process.again != nil {
		w.process.again.Stop()
	}
	w.process.again = time.AfterFunc(killAgainAfter, func() {
		w.do(func() {
			if !w.process.ended {
				w.deliver(d) //nolint:errcheck // the first error was returned
			}
		})
	})
}

// deliverAlone sends a signal to the worker process, whatever group it is in. w.mu is held.
func (w *Worker) deliverAlone(sig syscall.Signal) error {
	err := error(unix.ENOSYS)
	if w.process.pidfd >= 0 {
		err = unix.PidfdSendSignal(w.process.pidfd, sig, nil, 0)
	}
	if errors.Is(err, unix.ENOSYS) && w.process.child {
		return unix.Kill(w.process.PID, sig)
	}
	return err
}

// pinned reports whether the process exists, if only as a zombie, so that its PID belongs to no other process.
func (w *Worker) pinned() bool {
	return w.process.pidfd >= 0 && proc.Exists(w.process.pidfd)
}

// Rest is what a stopping worker has left: its first process, a wrapper such as sh -c, has ended before the server that
// it started. The server goes through the remaining steps of the stop plan, and the worker has ended when no process is
// left. A process belongs to the rest if it is in the worker's session or control group, or if it is a child of ours
// with the worker's NOTIFY_SOCKET. The session keeps its number, which is the PID of the first process, from being
// reused; no zombie is needed for that.
//
//	sh -c "server & wait"   TERM kills sh: its heir, server, is a top; it gets TERM, and the worker waits for it
//	npm ─► sh ─► node       npm passes TERM on and exits by itself: node counts as told, and lives as long as a process
//	                        of the rest has a connection
type Rest struct {
	Status syscall.WaitStatus // of the first process
	Known  bool

	// Passed says that the process that ended last exited by itself. So it had a handler for the signal, and
	// supervisord assumes that the handler passed the signal on. A process that the signal killed cannot have.
	Passed bool

	Due []Pending // signals that were not sent yet

	// Tops are the processes without a parent in the rest, by PID: the heirs of one that ended. They get the signals.
	// true: supervisord has told it to stop; otherwise its parent has, and it lives as long as it has connections.
	Tops map[int]bool
}

// rest is what this supervisor knows of a Rest, beside it. Worker.mu guards both.
type rest struct {
	ends  map[int]*epoll.Source // of Tops: their pidfds, which are the Worker's; a child of ours is not in it
	said  string                // Left of the last Outlived
	began time.Time
	again *time.Timer // until the next look; nil: something else leads to that
}

// member is a process of the rest. Its PID may belong to another one by now.
type member struct {
	*pinned
	top bool
}

// leavesRest reports whether the end of the first process is that of the worker only when nothing is left. w.mu is
// held.
func (w *Worker) leavesRest() bool {
	p := &w.process
	return p.Running && p.Stop.Signal != 0 && !p.Killed && !p.ended
}

// end continues after the first process has ended and was reaped. w.mu is held.
func (w *Worker) end(status syscall.WaitStatus, known bool) {
	if !w.leavesRest() {
		w.finish(status, known)
		return
	}
	if w.process.exit != nil {
		w.launcher.poll.Remove(w.process.exit)
		w.process.exit = nil
	}
	w.process.Rest = &Rest{Status: status, Known: known, Passed: known && status.Exited(), Tops: map[int]bool{}}
	w.leave()
}

// leave begins to look after the Rest. w.mu is held.
func (w *Worker) leave() {
	w.process.rest = &rest{began: time.Now(), ends: map[int]*epoll.Source{}}
	w.launcher.resting.Store(w, nil)
	w.lookSoon()
}

// lookSoon has the rest looked at, on the goroutine of w.aside: one look at a time.
func (w *Worker) lookSoon() { w.aside.Do(w.lookAtRest) }

// heirPause is how soon the rest is looked at again if a look found nothing but was not whole.
const heirPause = 5 * time.Millisecond

// lookAtRest finds the processes that are left, sends them the signals that they lack, and ends the worker if none is
// left. It runs on w.aside.
func (w *Worker) lookAtRest() {
	members, whole := w.remains()
	defer closeMembers(members)
	busy := w.busy(members)
	w.launcher.gate.RLock()
	defer w.launcher.gate.RUnlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process.ended {
		return
	}
	state, r := w.process.Rest, w.process.rest
	if r.again != nil {
		r.again.Stop()
	}
	w.dropTops(members)
	if len(members) == 0 && !whole { // what is Due waits for the heirs
		r.again = time.AfterFunc(heirPause, w.lookSoon)
		return
	}
	text, waits := w.tellAll(members, busy)
	switch {
	case len(members) == 0:
		w.launcher.resting.Delete(w)
		w.killRest()
		w.finish(state.Status, state.Known)
		w.launcher.lookForStrays()
	case len(state.Tops) == 0: // one has ended during the look
		w.lookSoon()
	case text != "" && text != r.said:
		r.said = text
		w.events.put(life.Outlived{First: life.Ending(state.Status, state.Known), Left: text})
	}
	if waits { // nothing says when a process closes a connection
		r.again = time.AfterFunc(diag.InHand{}.Next(time.Since(r.began)), w.lookSoon)
	}
}

// tellAll sends every process what it is due, and kills the tops that nobody has told to stop and that have no
// connection. It names the tops that are left, and waits says that one of them only finishes its connections. w.mu is
// held.
func (w *Worker) tellAll(members []member, busy bool) (names string, waits bool) {
	var left []string
	for _, m := range members {
		switch told := w.tell(m); {
		case !m.top:
		case !told && !busy:
			m.send(unix.SIGKILL)
		default:
			left = append(left, m.String())
			waits = waits || !told
		}
	}
	w.process.Rest.Due = nil
	return strings.Join(left, ", "), waits
}

// tell sends a process what it is due, and reports whether supervisord has told it to stop, if it is a top. A new top
// gets the signal that the one before it had, unless that has passed the signal on. w.mu is held.
func (w *Worker) tell(m member) (told bool) {
	r, stop := w.process.Rest, w.process.Stop
	of, err := unix.Getpgid(m.pid)
	grouped := err == nil && of == w.process.PID
	told, known := r.Tops[m.pid]
	new := m.top && !known
	if new {
		told = !r.Passed
		r.Tops[m.pid] = told
	}
	switch {
	case new && w.process.Killed:
		m.send(unix.SIGKILL)
	case new && told:
		if !stop.Group || !grouped {
			m.send(stop.Signal)
		}
	default:
		for _, d := range r.Due {
			if m.top || d.Group && grouped || d.Signal == syscall.SIGKILL {
				m.send(d.Signal)
			}
		}
	}
	if m.top {
		w.watchTop(m)
	}
	return told
}

// watchTop has the worker looked at again when a top ends. w.mu is held.
func (w *Worker) watchTop(m member) {
	ends := w.process.rest.ends
	if !w.process.child && ends[m.pid] == nil {
		if fd, err := duplicate(m.fd); err != nil {
			time.AfterFunc(watchPause, w.lookSoon)
		} else if s, err := w.launcher.poll.Add(fd, epoll.ReadableOnce, func(uint32) { w.lookSoon() }); err != nil {
			unix.Close(fd)
			time.AfterFunc(watchPause, w.lookSoon)
		} else {
			ends[m.pid] = s
		}
	}
	if over(m.fd) { // it may have been reaped before it was known
		w.lookSoon()
	}
}

// dropTops forgets those that have ended. w.mu is held.
func (w *Worker) dropTops(members []member) {
	r, ends := w.process.Rest, w.process.rest.ends
	for pid := range r.Tops {
		if slices.ContainsFunc(members, func(m member) bool { return m.top && m.pid == pid }) {
			continue
		}
		if s := ends[pid]; s != nil {
			status, known := proc.ExitStatus(s.FD)
			r.Passed = known && passes(status)
			w.launcher.poll.Remove(s)
			unix.Close(s.FD)
			delete(ends, pid)
		}
		delete(r.Tops, pid)
	}
}

// passes reports whether what a process of the rest has left is taken to know that it has to stop. What one has left
// that was killed is to be killed, too.
func passes(status syscall.WaitStatus) bool {
	return status.Exited() || status.Signaled() && status.Signal() == syscall.SIGKILL
}

// topEnded says that a child of ours, which may be one of the tops, has ended.
func (w *Worker) topEnded(pid int, status syscall.WaitStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process.ended {
		return
	}
	if _, is := w.process.Rest.Tops[pid]; is {
		w.process.Rest.Passed = passes(status)
		w.lookSoon()
	}
}

// deliverRest sends a signal to what is left: to the tops, for a whole group to that, too, and KILL to everything. w.mu
// is held.
func (w *Worker) deliverRest(d Pending) {
	if d.Signal == syscall.SIGKILL {
		w.killRest()
	}
	w.process.Rest.Due = append(w.process.Rest.Due, d)
	w.lookSoon()
}

// busy reports whether the processes that are left have connections that were accepted from the worker's listeners. It
// is false if the kernel does not show that.
func (w *Worker) busy(members []member) bool {
	if len(members) == 0 {
		return false
	}
	accepted := w.accepted()
	for _, m := range members {
		links, _ := proc.Descriptors(m.pid)
		for _, link := range links {
			if inode, is := proc.SocketInode(link); is && accepted[inode] {
				return true
			}
		}
	}
	return false
}

// accepted returns the inodes of all connections that were accepted from the worker's listeners, by whatever process.
func (w *Worker) accepted() map[uint64]bool {
	inodes := map[uint64]bool{}
	see := func(inode uint64) { inodes[inode] = inode != 0 }
	for _, fd := range w.spec.Sockets {
		at, _ := unix.Getsockname(fd)
		ready.Connections(at, see) // one that the kernel does not tell about has none
	}
	return inodes
}

// remains returns the processes that are left and live. The caller closes their pidfds. A process that ends during the
// look leaves its children to this process, and the look may miss them. So nothing is left only if the look is whole:
// nothing ended during it, and every pidfd could be opened. remains may take long, so it runs on w.aside.
func (w *Worker) remains() (members []member, whole bool) {
	before, whole := w.findRest()
	if len(before) == 0 {
		return nil, whole
	}
	opened, dead := map[int]*pinned{}, map[int]bool{}
	for pid := range before {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			opened[pid], dead[pid] = &pinned{pid, fd}, over(fd) // its children have another parent already
		}
	}
	found, whole := w.findRest() // again: now a PID that is in it, and has not ended, is that of its pidfd
	below := map[int]bool{}
	for pid := range found {
		for _, child := range proc.Children(pid) {
			below[child] = true
		}
		whole = whole && opened[pid] != nil
	}
	for pid, p := range opened {
		if found[pid] && !over(p.fd) {
			members = append(members, member{p, !below[pid]})
			continue
		}
		whole = whole && dead[pid]
		p.close()
	}
	slices.SortFunc(members, func(a, b member) int { return a.pid - b.pid })
	return members, whole
}

// findRest returns the PIDs of what is left. Some may be of zombies. whole is false if one of our children ended before
// findRest knew its session.
func (w *Worker) findRest() (found map[int]bool, whole bool) {
	found, whole = map[int]bool{}, true
	if w.process.Group != "" {
		for _, pid := range proc.GroupMembers(w.process.Group) {
			found[pid] = true
		}
	}
	w.mu.Lock()
	first, child, session, path := w.process.PID, w.process.child, w.ownsNumber(), w.process.NotifyPath
	w.mu.Unlock()
	candidates := w.launcher.orphans
	if !child {
		candidates = proc.PIDs
	}
	var others []int
	for _, pid := range candidates() {
		switch of, err := unix.Getsid(pid); {
		case session && err == nil && of == first:
			found[pid] = true
		case child && errors.Is(err, unix.ESRCH):
			whole = false
		case child:
			others = append(others, pid)
		}
	}
	for _, pid := range others { // this may take long: all sessions are known before
		if w.launcher.named(pid, path) {
			found[pid] = true
		}
	}
	if child && session {
		addBelow(found, first)
	}
	delete(found, first) // a zombie
	return found, whole
}

// addBelow adds the processes of a session that are below those found, which are nobody's orphans.
func addBelow(found map[int]bool, session int) {
	for pid := range found {
		for _, below := range proc.Descendants(pid) {
			if inSession(below, session) {
				found[below] = true
			}
		}
	}
}

// inSession reports whether a process belongs to a session.
func inSession(pid, session int) bool {
	of, err := unix.Getsid(pid)
	return err == nil && of == session
}

// named reports whether a process has this NOTIFY_SOCKET in its environment.
func (l *Launcher) named(pid int, path string) bool {
	ctx, cancel := context.WithTimeout(l.life, strayWithin)
	defer cancel()
	has, _ := foreign.Look(ctx, &l.looks, pid, func() string { return notifySocket(ctx, pid) })
	return has != "" && has == path
}

// over reports whether the process of a pidfd has ended, if only as a zombie.
func over(pidfd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return n > 0 && err == nil
}

// send sends a signal; the process may have ended.
func (m member) send(sig syscall.Signal) { unix.PidfdSendSignal(m.fd, sig, nil, 0) } //nolint:errcheck

// String says what the process is: "node (PID 12)".
func (m member) String() string {
	return fmt.Sprintf("%s (PID %d)", proc.Name(m.pid), m.pid)
}

// closeMembers closes the pidfds.
func closeMembers(members []member) {
	for _, m := range members {
		m.close()
	}
}

// adoptRest continues with the Rest of another image. After an execve its processes are our children. w.mu is held.
func (w *Worker) adoptRest() {
	of, r := w.process.Rest.Tops, *w.process.Rest // which stay the caller's
	r.Tops, w.process.Rest = map[int]bool{}, &r
	w.process.child = false
	w.leave()
	for pid, told := range of {
		r.Tops[pid] = told
		w.process.child = w.process.child || isChild(pid)
	}
}

package supervisor

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/epoll"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/diag"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/life"
)

// steerRetry is how soon new connections are steered again that could not be.
const steerRetry = time.Second

// steer sends new connections where the program wants them. While that fails, nobody looks whether old workers are
// quiet: they may still get new connections, and drain.timeout decides. The core is not told; it wants the same until
// something changes, and steer tries again each steerRetry.
func (p *runner) steer() {
	before := p.astray
	p.astray = ""
	if shares := p.shares(p.core.Steering); len(shares) > 0 {
		if err := p.s.table.Steer(shares); err != nil {
			p.astray = err.Error()
		}
	}
	if p.astray == "" {
		return
	}
	if p.astray != before {
		p.log.Error("cannot steer new connections; they go where they went before", zap.String("error", p.astray))
	}
	p.s.after(steerRetry, func() {
		if p.astray != "" && p.core.Goal == program.Run {
			p.steer()
			p.quiesce()
		}
	})
}

// shares says the same with the lanes of the generations. One that is gone has none, and a listener that another
// program has got from this one is that one's.
func (p *runner) shares(of []program.Share) []socket.Part {
	var shares []socket.Part
	lent := p.lent()
	for _, s := range of {
		if g := p.generations[s.Generation]; g != nil {
			given := func(ln *socket.Lane) bool {
				return p.hasGiven(ln.Listener.Key()) || slices.Contains(lent[s.Generation], ln)
			}
			lanes := slices.DeleteFunc(slices.Clone(g.lanes), given)
			shares = append(shares, socket.Part{Lanes: lanes, Slots: s.Slots, Weight: s.Weight, Unit: s.Unit})
		}
	}
	for _, lanes := range lent {
		shares = append(shares, socket.Part{Lanes: lanes, Weight: program.Whole})
	}
	return shares
}

// share returns the part of new connections that a generation gets, in parts of 10,000.
func (p *runner) share(generation int) int {
	all, own := 0, 0
	for _, s := range p.core.Steering {
		all += s.Weight
		if s.Generation == generation {
			own += s.Weight
		}
	}
	if all == 0 {
		return 0
	}
	return own * program.Whole / all
}

// pause lets new connections wait in the kernel, or ends that: also at listeners that only generations still have.
func (p *runner) pause(paused bool) {
	keys := keysOf(p.listeners)
	for _, g := range p.generations {
		if !paused {
			keys = append(keys, g.keys()...)
		}
	}
	if err := p.s.table.Pause(keys, paused); err != nil {
		p.log.Error("cannot pause or resume new connections", zap.Bool("paused", paused), zap.Error(err))
	}
}

// keys lists the keys of the listeners of a generation.
func (g *resources) keys() (keys []string) {
	for _, ln := range g.lanes {
		keys = append(keys, ln.Listener.Key())
	}
	return keys
}

func keysOf(listeners []socket.Resolved) []string {
	var keys []string
	for _, l := range listeners {
		keys = append(keys, l.Key())
	}
	return keys
}

const blindText = "cannot see which connections the old workers use: they are told to stop when drain.timeout and " +
	"drain.silence are over"

// finishing names workers that get nothing new: those of a generation, or the one in a slot.
type finishing struct{ generation, slot int }

// slots is what the table calls them.
func (f finishing) slots() []int {
	if f.slot == program.EverySlot {
		return nil
	}
	return []int{f.slot}
}

// quiescence is the watch over what workers that finish still have in hand. Either a look is under way, on a goroutine
// of its own, or a timer runs until the next one. Both end by themselves when runner.quiet has the quiescence no more:
//
//	beginQuiescence ─► lookIn ─► look ─► looked ─┬─► lookIn … until the core tells the workers to stop
//	                                             └─► Looked, to the core: quiet or not
type quiescence struct {
	finishing
	hand  *hand
	began time.Time
	blind bool // a look has failed, and this was logged

	// halted are workers that have got SIGSTOP, by number, and that get SIGCONT when they were told to stop, or have
	// something in hand; tries is how many looks have followed
	halted []int
	tries  int
}

// hand is what workers that finish may have in hand. It belongs to the look under way.
type hand struct {
	left    []diag.Target // of TCP and UDP
	alone   bool          // others accept from left as well: only the workers' own connections count
	shared  []string      // the names of unix sockets, from which others accept as well
	replace bool          // the workers have successors that accept beside them: see counted
	signal  unix.Signal   // the first of the stop plan, to the first process of a worker, or to its group
	group   bool
	halted  bool          // the worker has got SIGSTOP
	still   bool          // it had obeyed before the look
	silence time.Duration // after which a connection counts as idle
	until   time.Time     // then only what careless workers have is still waited for, if they have successors
	watch   *diag.Watch   // nil: there was nothing to look at
}

// quiesce begins to look at what workers that finish have in hand, and ends the looks at those that are told to stop or
// are gone. A worker that drains itself is told at once, where new connections go elsewhere by now, and when it has
// received the datagrams that wait.
func (p *runner) quiesce() {
	var all []finishing
	for w, g := range p.core.Workers() {
		if w.State != program.Finishing || p.generations[g.Number] == nil {
			continue
		}
		f := p.finishingOf(w, g)
		if w.DrainsItself && p.astray == "" && !p.awaitsDatagrams(w.Number) {
			told := program.Did{Worker: w.Number, Event: life.DrainsItself{}}
			p.s.later(func() func() { return func() { p.step(told) } })
		} else if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	for f := range p.quiet {
		if !slices.Contains(all, f) {
			delete(p.quiet, f) // its next look finds that
		}
	}
	for _, f := range all {
		if p.quiet[f] == nil && p.astray == "" {
			p.beginQuiescence(f)
		}
	}
}

// finishingOf says with which others a worker finishes. Workers that are replaced slot by slot finish each by itself,
// and so do those that accept beside their successors: they are hardly ever idle together.
func (p *runner) finishingOf(w *program.Worker, g *program.Generation) finishing {
	if p.core.Role(g) == program.RoleDraining && g.Config.Reload.Strategy != config.Rolling && g.Steered {
		return finishing{g.Number, program.EverySlot}
	}
	return finishing{g.Number, w.Slot}
}

// unreceived is what workers that drain themselves must not be told to stop before it is received.
func (p *runner) unreceived(f finishing) []diag.Target {
	return socket.Unreceived(p.generations[f.generation].lanes, f.slots())
}

// awaitsDatagrams reports whether a worker finishes and has datagrams to receive.
func (p *runner) awaitsDatagrams(worker int) bool {
	w, g := p.core.Find(worker)
	return w != nil && w.State == program.Finishing && p.generations[g.Number] != nil &&
		len(p.unreceived(p.finishingOf(w, g))) > 0
}

// drainThemselves reports whether all these workers do.
func (p *runner) drainThemselves(f finishing) bool {
	for w := range p.finishers(f) {
		if !w.DrainsItself {
			return false
		}
	}
	return true
}

// haltTries is how many looks wait for SIGSTOP to take effect, each twice as long as the one before, 0.1 s in all: a
// process that waits for a processor or a disk obeys late.
const haltTries = 8

// halt stops workers that accept beside others for another look, and reports whether one follows: they accept from a
// socket that gets new connections, so they may have accepted one since the last look. They get SIGCONT after the
// decision, and the signal of the stop plan before that. Where a process does not obey in time, another time may be
// better.
func (p *runner) halt(q *quiescence) bool {
	if !q.hand.beside() || q.hand.still || q.tries == haltTries || p.core.Drops() {
		return false
	}
	if q.tries++; q.tries > 1 {
		p.lookIn(time.Millisecond<<(q.tries-2), q)
		return true
	}
	for w := range p.finishers(q.finishing) {
		if h := p.workers[w.Number]; h != nil && h.Signal(unix.SIGSTOP, true) == nil {
			q.halted = append(q.halted, w.Number)
		}
	}
	q.hand.halted = true
	p.look(q)
	return true
}

// unhalt has halted workers continue, with what they were told meanwhile.
func (p *runner) unhalt(q *quiescence) {
	for _, number := range q.halted {
		if h := p.workers[number]; h != nil {
			_ = h.Signal(unix.SIGCONT, true) // SIGSTOP could be sent
		}
	}
	q.halted, q.tries, q.hand.halted, q.hand.still = nil, 0, false, false
}

// beginQuiescence takes down what the workers have in hand now. Connections that come later are not theirs: new ones go
// elsewhere since the last Steer.
func (p *runner) beginQuiescence(f finishing) {
	lanes := p.generations[f.generation].lanes
	if p.share(f.generation) == 0 {
		if err := p.s.table.Leave(lanes); err != nil {
			p.log.Warn("old workers may get new connections", zap.Int("generation", f.generation), zap.Error(err))
		}
	}
	h := &hand{left: socket.Left(lanes, f.slots())}
	q := &quiescence{finishing: f, hand: h, began: time.Now()}
	p.quiet[f] = q
	if p.drainThemselves(f) {
		h.left = p.unreceived(f)
	}
	cg := p.core.Generation(f.generation)
	h.alone = len(h.left) == 0
	h.replace = p.core.Handed || p.core.Serving != cg || p.core.Trial != nil && !(h.alone && cg.Steered)
	if h.alone {
		h.left = socket.Accepted(lanes)
		if h.replace {
			h.left = slices.DeleteFunc(h.left, func(t diag.Target) bool { return len(t.Receives) > 0 })
		}
	}
	for w, g := range p.finishers(f) {
		h.signal, h.group = cmp.Or(unix.Signal(w.Instead), g.Config.Stop.Steps[0].Signal), g.Config.Stop.Group
		if !w.DrainsItself {
			h.shared = socket.Names(lanes)
		}
	}
	if !p.core.Drops() { // otherwise it finds out only whether somebody waits to be accepted
		h.silence = cg.Config.Drain.Silence
	}
	h.until = q.began.Add(h.silence)
	if h.alone && h.replace || len(h.left) == 0 {
		p.look(q)
		return
	}
	if !h.alone {
		h.watch = diag.NewWatch(h.left, h.silence)
	}
	p.lookIn(diag.First, q)
}

// lookIn looks after a pause.
func (p *runner) lookIn(pause time.Duration, q *quiescence) {
	p.s.after(pause, func() {
		if p.quiet[q.finishing] == q {
			p.look(q)
		} else {
			p.unhalt(q)
		}
	})
}

// look looks off the loop: the kernel goes through all its connections. Where a socket of the workers gets new
// connections again, for a successor in the same slot, the quiescence begins anew: others accept from it.
func (p *runner) look(q *quiescence) {
	hand, g := q.hand, p.generations[q.generation] // nil: it is gone, and the next attend drops q
	if g != nil && !hand.alone && len(hand.left) > 0 && len(socket.Left(g.lanes, q.slots())) == 0 {
		p.beginQuiescence(q.finishing)
		return
	}
	var pids []int
	for w := range p.finishers(q.finishing) {
		pids = append(pids, w.PID)
	}
	p.s.later(func() func() {
		look, err := hand.look(pids)
		return func() { p.looked(q, look, err) }
	})
}

// beside reports whether others accept from sockets that the workers may have connections of.
func (h *hand) beside() bool { return h.alone && len(h.left) > 0 || len(h.shared) > 0 }

// careless lists the processes of these workers that the signal kills: at once, or when it has killed the first
// process, because then those that it has started get it, too.
func (h *hand) careless(pids []int) (all []int) {
	for _, pid := range pids {
		if !h.group && !proc.Dies(pid, h.signal) {
			continue
		}
		for _, pid := range family([]int{pid}) {
			if proc.Dies(pid, h.signal) {
				all = append(all, pid)
			}
		}
	}
	return all
}

// look asks what these workers, by their first processes, have in hand.
func (h *hand) look(pids []int) (diag.InHand, error) {
	if h.beside() && len(h.counted(pids)) == 0 {
		if h.shared = nil; h.alone {
			h.left = nil
		}
	}
	if len(h.left)+len(h.shared) == 0 {
		return diag.InHand{}, nil
	}
	h.still = h.halted && proc.Stopped(h.counted(pids))
	l, err := h.lookAt(pids)
	if err != nil && h.beside() && h.replace && len(h.careless(pids)) == 0 {
		h.until = time.Time{} // no look finds a moment for them
		return h.look(pids)
	}
	if err == nil && l.Quiet() && h.crowded() {
		l, err = h.lookAt(pids) // a worker may have accepted a connection while the first look began
	}
	return l, err
}

// lookAt is one look. The descriptors of the processes say which connections are theirs where the tags do not: beside
// others, and where a listener has more sockets than there are tags.
func (h *hand) lookAt(pids []int) (l diag.InHand, err error) {
	if len(h.shared) > 0 {
		held, err := socketsOf(h.counted(pids))
		if err == nil {
			err = l.AddUnix(h.shared, held)
		}
		if err != nil {
			return l, err
		}
	}
	if len(h.left) == 0 {
		return l, nil
	}
	if h.alone || h.crowded() {
		counted := family(pids)
		if h.alone {
			counted = h.counted(pids)
		}
		held, err := socketsOf(counted)
		for _, t := range h.left { // what waits there is counted, or the others' to accept
			for _, queue := range t.Queues {
				delete(held, queue)
			}
		}
		if h.alone && (err != nil || len(held) == 0) {
			return l, err
		}
		if h.watch == nil {
			h.watch = diag.NewWatch(h.left, h.silence)
		}
		if err != nil {
			held = nil // the others' count, too
		}
		h.watch.Of(held, h.alone)
	}
	h.watch.Sleeping(func() (map[string]string, bool) { return proc.Sleeping(family(pids)) })
	tcp, err := h.watch.Look()
	tcp.Unread, tcp.Active = tcp.Unread+l.Unread, tcp.Active+l.Active
	return tcp, err
}

// crowded reports whether the connections of other workers have a tag of these.
func (h *hand) crowded() bool {
	return slices.ContainsFunc(h.left, func(t diag.Target) bool { return t.Crowded })
}

// finishers are the workers that finish, each with its generation.
func (p *runner) finishers(f finishing) iter.Seq2[*program.Worker, *program.Generation] {
	return func(yield func(*program.Worker, *program.Generation) bool) {
		for w, g := range p.core.Workers() {
			if w.State == program.Finishing && p.finishingOf(w, g) == f && !yield(w, g) {
				return
			}
		}
	}
}

// counted lists the processes whose connections count where others accept beside these workers. Those that have
// successors are told in a moment without any: two versions answer until then. One that catches the signal may finish
// what it has, or drop it, as the runtimes of many languages do: it has drain.silence to find such a moment. One that
// is careless has drain.timeout.
func (h *hand) counted(pids []int) []int {
	if h.replace && !time.Now().Before(h.until) {
		return h.careless(pids)
	}
	return family(pids)
}

// family lists processes, and all that they have started.
func family(pids []int) (all []int) {
	for _, pid := range pids {
		all = append(append(all, proc.Descendants(pid)...), pid)
	}
	return all
}

// socketsOf returns the inodes of the sockets that processes have.
func socketsOf(pids []int) (map[uint64]bool, error) {
	inodes := map[uint64]bool{}
	for _, pid := range pids {
		links, err := proc.Descriptors(pid)
		if err != nil && !proc.Gone(err) {
			return nil, err
		}
		for _, link := range links {
			if inode, is := proc.SocketInode(link); is {
				inodes[inode] = true
			}
		}
	}
	return inodes, nil
}

// looked takes the result of a look, tells the core, and arranges the next one. A look that has failed decides nothing:
// then drain.timeout does.
func (p *runner) looked(q *quiescence, l diag.InHand, err error) {
	pause := l.Next(time.Since(q.began))
	if q.hand.beside() {
		pause = min(pause, max(besideOthers, restOfLook*l.Took))
	}
	switch {
	case p.quiet[q.finishing] != q: // they are told to stop meanwhile
		p.unhalt(q)
		return
	case err != nil && !q.blind:
		q.blind = true
		p.log.Warn(blindText, zap.Int("generation", q.generation), zap.Error(err))
	case err == nil:
		look := program.Look{Queued: l.Queued, Handshakes: l.Handshakes, Unread: l.Unread, Answering: l.Answering,
			Active: l.Active, Idle: l.Idle, Within: q.hand.silence}
		quiet := l.Quiet() || p.core.Drops() && l.Queued+l.Handshakes == 0 // the stop plan is for the rest
		if quiet && p.halt(q) {
			return
		}
		quiet = quiet && (!q.hand.halted || q.hand.still)
		unseen := len(q.hand.left)+len(q.hand.shared) == 0
		p.step(program.Looked{Generation: q.generation, Slot: q.slot, Quiet: quiet, Unseen: unseen, Look: look})
		if quiet {
			pause = p.nextPlace(q)
		} else {
			pause = p.nextGap(q, pause, l.Took)
		}
	}
	p.unhalt(q)
	p.lookIn(pause, q)
}

// nextGap is how soon the next look follows one that took so long, if not after this pause: at drain.timeout, and after
// it so often that one finds a moment between two requests.
func (p *runner) nextGap(q *quiescence, pause, took time.Duration) time.Duration {
	for w, g := range p.finishers(q.finishing) {
		over := time.Until(w.Since.Add(g.Config.Drain.Timeout))
		pause = min(pause, max(over, betweenRequests, restOfLook*took))
	}
	return pause
}

// betweenRequests is the pause between two looks after drain.timeout, besideOthers before it at workers that accept
// beside others, and restOfLook how many times as long as a look they are at least: a look costs a
// millisecond or more of a CPU.
const (
	betweenRequests = 20 * time.Millisecond
	besideOthers    = 100 * time.Millisecond
	restOfLook      = 5
)

// nextPlace is how long after one worker that is quiet the next one is told to stop.
func (p *runner) nextPlace(q *quiescence) time.Duration {
	g := p.core.Generation(q.generation)
	if g == nil {
		return spreadSoonest
	}
	return max(g.Config.Drain.Spread/time.Duration(max(len(g.Slots), 1)), spreadSoonest)
}

// spreadSoonest is the shortest pause between two looks at workers that are quiet and wait for their places in
// drain.spread.
const spreadSoonest = 100 * time.Millisecond

// unowned watches the accept queues from which nobody accepts (socket.Queue). A client that ends its handshake there
// must learn that it has to connect again. The kernel wakes the loop when one comes, and never else: no queue of a
// generation is watched. The descriptors are the table's: it may close one, and another socket may get its number,
// before the next sweep, which therefore drops first what the table does not list any more.
type unowned struct {
	watched map[string][]*watchedQueue // by the key of the listener
	had     map[uint64]owner           // by socket: who had it last
}

// owner is the generation of a program.
type owner struct {
	program    *runner
	generation int
}

type watchedQueue struct {
	socket.Queue
	source *epoll.Source // nil: it is not watched
}

// sweep resets what waits where nobody accepts, at listeners that have changed and at those with these keys, and
// watches these queues from now on. It is called when steering has changed or a generation is gone, and before a queue
// gets an owner again.
func (s *Supervisor) sweep(keys ...string) {
	u := &s.unowned
	unowned := s.table.Unowned(keys...)
	for key, queues := range unowned { // first: another listener may have the number of a descriptor by now
		u.watched[key] = slices.DeleteFunc(u.watched[key], func(w *watchedQueue) bool {
			gone := !slices.Contains(queues, w.Queue)
			if gone {
				s.Queues.Remove(w.source)
				delete(u.had, w.Socket)
			}
			return gone
		})
	}
	for key, queues := range unowned {
		for _, q := range queues {
			if !slices.ContainsFunc(u.watched[key], func(w *watchedQueue) bool { return w.Queue == q }) {
				u.watched[key] = append(u.watched[key], &watchedQueue{q, s.watchQueue(key, q)})
			}
		}
		for _, w := range u.watched[key] {
			s.refuse(key, w)
		}
		if len(queues) == 0 {
			delete(u.watched, key)
		}
	}
}

// watchQueue has the loop sweep when a connection comes to a queue.
func (s *Supervisor) watchQueue(key string, q socket.Queue) *epoll.Source {
	if s.Queues == nil {
		return nil
	}
	source, err := s.Queues.Add(q.FD, epoll.ReadableOnce, func(events uint32) {
		if events&unix.EPOLLIN != 0 {
			s.post(func() { s.sweep(key) })
		}
	})
	if err != nil {
		s.Log.Error("cannot watch the queue of a generation that is gone; a client that ends its handshake there later "+
			"waits in vain",
			zap.String("listener", key), zap.Error(err))
	}
	return source
}

// refuse resets what waits in a queue, and tells whose it was.
func (s *Supervisor) refuse(key string, w *watchedQueue) {
	n, err := w.Refuse()
	switch {
	case err != nil: // no descriptor is left
		s.after(refuseRetry, func() { s.sweep(key) })
	case w.source != nil:
		s.Queues.Again(w.source)
	}
	was, known := s.unowned.had[w.Socket]
	switch {
	case n == 0:
	case known && s.programs[was.program.core.Name] == was.program:
		was.program.step(program.Refused{Generation: was.generation, Connections: n})
	default:
		s.Log.Warn("connections that waited were reset: the generation they waited for is gone", zap.String("listener", key),
			zap.Int("connections", n))
	}
}

// refuseRetry is how soon connections are reset that could not be.
const refuseRetry = time.Second

// release gives back the sockets of a generation that is gone.
func (p *runner) release(g *resources) {
	for _, target := range socket.Left(g.lanes, nil) {
		for _, id := range target.Queues {
			p.s.unowned.had[id] = owner{p, g.number}
		}
	}
	g.lanes = p.s.table.Release(g.lanes)
	p.s.vacate()
}

// vacate finds out, off the loop, which free sockets the next generations may get: one look at a time.
func (s *Supervisor) vacate() {
	if s.vacating {
		return
	}
	if look := s.table.Vacate(); look != nil {
		s.vacating = true
		s.later(func() func() {
			found := look()
			return func() {
				found()
				s.vacating = false
				s.vacate()
			}
		})
	}
}

// releaseLast gives back the sockets of a generation that drains with its last worker, before the core hears of that:
// so the record of the reload says what was reset.
func (p *runner) releaseLast(worker int) {
	_, cg := p.core.Find(worker)
	if cg == nil || len(cg.Workers) > 1 || p.core.Role(cg) != program.RoleDraining || p.generations[cg.Number] == nil {
		return
	}
	g := p.generations[cg.Number]
	p.release(g)
	p.s.sweep(g.keys()...)
}

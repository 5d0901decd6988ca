package diag

import (
	"time"

	"golang.org/x/sys/unix"
)

// Lost is what connections had in hand when their process closed them or ended, in connections; each counts once.
//
// Unread is exact for TCP: the kernel says what was unread when it reset them. Unanswered is what the kernel's clock tells: the last data came from
// the client, and the process closed first. It does not show a request that came in the same tick of that clock as the answer before (1 to
// 10 ms) unless a look saw it; and where clients have the last word, as with acknowledgements of HTTP/2, it may count one that nobody
// misses. Unsent is a bound: the kernel still sends what the process has written, so the answer may arrive whole. Of a process that ends by
// itself nothing counts as Unsent. Unix sockets are seen
// by Mark only, and nobody knows which of their requests are unanswered.
type Lost struct {
	Unread     int // reset with data that nobody had read
	Unanswered int // closed after a request that was read, and before an answer
	Unsent     int // closed while an answer was under way
}

// Lost waits so many milliseconds for another message about connections that are gone, and again where a look has seen something in hand: the kernel sends
// them from a work queue, which may be late on a busy machine.
const (
	settling      = 30
	settlingTries = 3

	markAgain = 5 * time.Millisecond // a Mark just before will do: a generation has many workers that are killed at once
)

// trace is what is remembered of a connection.
type trace struct {
	dataIn, dataOut uint32
	waits           bool // a request came after the last answer
	unread          bool
	cut             bool // an answer was under way at Mark
	counted         bool // it is closed, and the kernel still finishes it
}

// unixTrace keeps the inodes of unix connections, which have no cookie here, apart from cookies.
const unixTrace = 1 << 63

// Keep remembers from now on what becomes of the connections that looks see, for Lost. Close ends that.
func (w *Watch) Keep() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known = map[uint64]trace{}
	if len(w.inet) > 0 {
		w.ended, _ = listen(w.ports()) // without it, what looks have seen must do
	}
}

// Close forgets what Keep remembers.
func (w *Watch) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended.close()
	w.ended, w.known = nil, nil
}

// Mark is one look, for Lost alone. With kill, which is right before processes are killed, the answers that are under way now count as Unsent.
func (w *Watch) Mark(kill bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.wasKill == kill && now.Sub(w.marked) < markAgain {
		return nil
	}
	w.marks, w.wasKill, w.marked = kill, kill, now
	if w.inodes != nil {
		w.held = w.inodes()
	}
	_, _, err := w.once(now)
	w.marks = false
	return err
}

func (w *Watch) note(s *inetSocket) {
	if w.known == nil {
		return
	}
	t := trace{dataIn: s.info.dataIn, dataOut: s.info.dataOut, unread: s.phase() == unread && s.readable > 0}
	t.waits = s.info.dataIn > 0 && (s.info.dataOut == 0 || s.info.received < s.info.sent || s.unclear())
	t.cut = w.known[s.cookie].cut || w.marks && s.inode != 0 && s.unacked > 0
	w.known[s.cookie] = t
}

func (w *Watch) noteUnix(s *unixSocket) {
	if w.known != nil && w.marks && s.inode != 0 && !s.peerGone {
		w.known[unixTrace|uint64(s.inode)] = trace{unread: s.queue > 0, cut: s.limit > 0}
	}
}

// Lost returns what was lost of the connections that were closed since the last call. died says that the process did not end by itself: then
// what it had written and closed itself counts as Unsent, too, if it is still under way.
func (w *Watch) Lost(died bool) (l Lost, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil {
		return l, nil
	}
	e := endings{Watch: w, open: map[uint64]bool{}, closing: map[uint64]inetSocket{}, told: map[uint64]inetSocket{}, died: died}
	if err := e.look(); err != nil {
		return l, err
	}
	e.listen()
	for cookie := range e.closing {
		if _, seen := w.known[cookie]; !seen {
			w.known[cookie] = trace{}
		}
	}
	for cookie, t := range w.known {
		if !e.open[cookie] && !t.counted {
			e.count(&l, cookie, t)
		}
		if _, closes := e.closing[cookie]; closes {
			w.known[cookie] = trace{counted: true}
		} else if !e.open[cookie] {
			delete(w.known, cookie)
		}
	}
	return l, nil
}

// endings is one look at what has become of the connections.
type endings struct {
	*Watch
	open     map[uint64]bool       // a process still has them, or they wait to be accepted
	closing  map[uint64]inetSocket // closed, and the kernel finishes them: their process was the first to close, but in LAST_ACK
	told     map[uint64]inetSocket // what ended says
	complete bool                  // … of all
	died     bool
}

// listen takes the kernel's messages, and waits for those that are on their way.
func (e *endings) listen() {
	if e.ended == nil {
		return
	}
	e.complete = e.read(0)
	waits, _ := e.untold()
	for tries := 0; waits && e.complete && tries < settlingTries; tries++ {
		e.complete = e.read(settling)
		_, waits = e.untold()
	}
}

func (e *endings) read(wait int) bool {
	return e.ended.read(e.buf, wait, func(s *inetSocket) { e.told[s.cookie] = *s })
}

// untold reports whether messages may be on their way, and whether a look has seen something in hand on such a connection.
func (e *endings) untold() (possible, probable bool) {
	for cookie, t := range e.known {
		_, told := e.told[cookie]
		if !e.open[cookie] && !t.counted && !told && !e.closing[cookie].info.known && cookie&unixTrace == 0 {
			possible, probable = true, probable || t.unread || t.waits
		}
	}
	return possible, probable
}

func (e *endings) look() error {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if len(e.inet) == 0 {
			break
		}
		if _, err := dumpInet(inetRequest(family, goneStates, 1<<(inetInfo-1), e.ports()), e.buf, e.see); err != nil {
			return err
		}
	}
	for cookie := range e.known {
		if cookie&unixTrace != 0 {
			return askUnix(1<<established, 0, 0, unix.NLM_F_DUMP, e.buf, func(s *unixSocket) { e.keeps(unixTrace | uint64(s.inode)) })
		}
	}
	return nil
}

func (e *endings) see(s *inetSocket) {
	_, known := e.known[s.cookie]
	switch {
	case s.inode != 0 || s.state == established || s.state == closeWait:
		e.keeps(s.cookie)
	case known, s.tagged && e.owns(s):
		e.closing[s.cookie] = *s
	}
}

// keeps says that a connection is still open. What was under way at Mark was another process's.
func (e *endings) keeps(cookie uint64) {
	if t, known := e.known[cookie]; known {
		t.cut = false
		e.known[cookie] = t
		e.open[cookie] = true
	}
}

// count counts a connection that was closed.
func (e *endings) count(l *Lost, cookie uint64, t trace) {
	closing, closes := e.closing[cookie]
	first := closes && closing.state != lastAck
	last, isTold := e.told[cookie]
	if !isTold && closing.info.known {
		last = closing
	}
	switch {
	case isTold && last.readable > 1, !isTold && !closes && t.unread && (!e.complete || cookie&unixTrace != 0):
		l.Unread++
	case t.cut:
		l.Unsent++
	case first && last.unanswered(t), first && !last.info.known && !e.complete && t.waits:
		l.Unanswered++
	case e.died && first && closing.unacked > 1: // the one byte is the FIN
		l.Unsent++
	}
}

// unanswered reports whether the last data of a connection that was closed came from the client. Within one tick of the kernel's clock only a look knows.
func (s *inetSocket) unanswered(t trace) bool {
	i := &s.info
	same := t.waits && t.dataIn == i.dataIn && t.dataOut == i.dataOut
	return i.dataIn > 0 && (i.dataOut == 0 || i.received < i.sent || i.received == i.sent && same)
}

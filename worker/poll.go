package worker

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// poller watches the descriptors on which workers speak. It is an epoll, so that a thousand of them need one goroutine, and that epoll is
// itself in Go's poller, so that the goroutine needs no thread.
type poller struct {
	file *os.File
	fd   int

	mu      sync.Mutex
	last    uint64
	sources map[uint64]*source
}

// source is one watched descriptor. ready is called as long as there is something to read.
type source struct {
	fd    int
	key   uint64 // never reused, unlike fd: a late event finds no source
	ready func(events uint32)
	once  bool // watched only until the first event, or again
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot create an epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // makes os.NewFile use Go's poller
		unix.Close(fd)
		return nil, fmt.Errorf("cannot set up an epoll: %w", err)
	}
	return &poller{file: os.NewFile(uintptr(fd), "epoll"), fd: fd, sources: map[uint64]*source{}}, nil
}

// add begins to watch fd for reading; with once only until the first event.
func (p *poller) add(fd int, once bool, ready func(events uint32)) (*source, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	s := &source{fd: fd, key: p.last, ready: ready, once: once}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, s.event(unix.EPOLLIN)); err != nil {
		return nil, fmt.Errorf("cannot watch a descriptor: %w", err)
	}
	p.sources[s.key] = s
	return s, nil
}

// remove ends the watch, explicitly: a close alone would not while a fork that is under way holds a copy.
func (p *poller) remove(s *source) {
	if s == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sources, s.key)
	unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
}

// again watches a source with once for one more event, unless it was removed.
func (p *poller) again(s *source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sources[s.key] == s {
		unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, s.fd, s.event(unix.EPOLLIN))
	}
}

// onlyHangup leaves s watched for EPOLLHUP alone.
func (p *poller) onlyHangup(s *source) {
	unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, s.fd, s.event(0))
}

func (s *source) event(events uint32) *unix.EpollEvent {
	if s.once {
		events |= unix.EPOLLONESHOT
	}
	return &unix.EpollEvent{Events: events, Fd: int32(uint32(s.key)), Pad: int32(uint32(s.key >> 32))}
}

func (p *poller) find(e *unix.EpollEvent) *source {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sources[uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32]
}

// run serves the sources until close.
func (p *poller) run(gate *gate) {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	var events [64]unix.EpollEvent
	n := 0
	wait := func(fd uintptr) bool {
		n, err = unix.EpollWait(int(fd), events[:], 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	}
	for conn.Read(wait) == nil && err == nil {
		gate.RLock()
		for i := range events[:n] {
			if s := p.find(&events[i]); s != nil {
				s.ready(events[i].Events)
			}
		}
		gate.RUnlock()
	}
}

func (p *poller) close() error { return p.file.Close() }

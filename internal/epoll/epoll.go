// Package epoll watches descriptors for many readers with one goroutine and no thread.
package epoll

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Poller watches the descriptors on which workers speak. It is an epoll, so that a thousand of them need one goroutine,
// and that epoll is itself in Go's poller, so that the goroutine needs no thread.
type Poller struct {
	file *os.File
	fd   int

	mu      sync.Mutex
	last    uint64
	sources map[uint64]*Source
}

// Source is one watched descriptor, which stays the caller's: Remove must come before its close.
type Source struct {
	FD     int
	key    uint64 // never reused, unlike FD: a late event finds no source
	ready  func(events uint32)
	events uint32
}

// New returns a Poller that watches nothing yet.
func New() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot create an epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // makes os.NewFile use Go's poller
		unix.Close(fd)
		return nil, fmt.Errorf("cannot set up an epoll: %w", err)
	}
	file := os.NewFile(uintptr(fd), "epoll")
	if file.SetReadDeadline(time.Time{}) != nil { // Go's poller does not watch it, and does not say why
		file.Close()
		return nil, fmt.Errorf("cannot watch an epoll: %w, or %w: see fs.epoll.max_user_watches", unix.ENOMEM, unix.ENOSPC)
	}
	return &Poller{file: file, fd: fd, sources: map[uint64]*Source{}}, nil
}

// What Add watches for, epoll_ctl(2).
const (
	Readable     = unix.EPOLLIN                        // as long as there is something to read
	ReadableOnce = unix.EPOLLIN | unix.EPOLLONESHOT    // until there is something to read, or Again
	HangupOnce   = unix.EPOLLRDHUP | unix.EPOLLONESHOT // until a listening socket is shut down; connections wake nobody
)

// Add begins to watch fd. Run calls ready, on its own goroutine, with what has happened.
func (p *Poller) Add(fd int, events uint32, ready func(events uint32)) (*Source, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	s := &Source{FD: fd, key: p.last, ready: ready, events: events}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, s.FD, s.event(s.events)); err != nil {
		return nil, fmt.Errorf("cannot watch a descriptor: %w", err)
	}
	p.sources[s.key] = s
	return s, nil
}

// Remove ends the watch, explicitly: a close alone would not while a fork that is under way holds a copy.
func (p *Poller) Remove(s *Source) {
	if s == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sources, s.key)
	unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, s.FD, nil)
}

// Again watches a source that was watched once for one more event, unless it was removed.
func (p *Poller) Again(s *Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sources[s.key] == s {
		unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, s.FD, s.event(s.events))
	}
}

// OnlyHangup leaves s watched for EPOLLHUP alone.
func (p *Poller) OnlyHangup(s *Source) {
	unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, s.FD, s.event(0))
}

func (s *Source) event(events uint32) *unix.EpollEvent {
	return &unix.EpollEvent{Events: events, Fd: int32(uint32(s.key)), Pad: int32(uint32(s.key >> 32))}
}

func (p *Poller) find(e *unix.EpollEvent) *Source {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sources[uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32]
}

// Run serves the sources until Close, each batch with gate held for reading.
func (p *Poller) Run(gate interface {
	RLock()
	RUnlock()
}) {
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

// Close ends Run.
func (p *Poller) Close() error { return p.file.Close() }

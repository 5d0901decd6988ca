// Package account is what the workers of the soak say of their work: a file of shared memory in which each keeps what
// it has in hand, and the words with which it answers. The file survives the worker, so when a worker was killed on
// purpose, it tells which connections and requests died with it. Nothing else may be lost.
package account

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// room is how many connections a worker can have at a time.
const room = 1024

const magic = 0x736f616b31

// Sheet is the file, as both sides map it.
type Sheet struct {
	magic, PID, Generation, Started uint64
	Lossy                           uint64 // 1: a version that is meant to die
	program                         [32]byte
	Accepted, Begun, Answered       atomic.Uint64
	Full                            atomic.Uint64 // connections for which there was no room
	Entries                         [room]Row
}

// Row is a connection that was accepted and is not closed, or, for a datagram, one that was read and is not answered.
type Row struct {
	Port  atomic.Uint64 // of the client; 0: the entry is free
	Since atomic.Uint64 // when it was accepted: Now
	ID    atomic.Uint64 // the request in hand; 0: none
	Last  atomic.Uint64 // the last that was answered
}

// Program returns the name of the program.
func (p *Sheet) Program() string { return unix.ByteSliceToString(p.program[:]) }

// Now is CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share, and which nobody can set.
func Now() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // it cannot fail
	}
	return uint64(t.Nano())
}

// Book is a worker's own account.
type Book struct {
	*Sheet
	file *os.File // its lock ends with the process
	mu   sync.Mutex
	free []*Row
}

// Create makes the account of this process in dir. Its lock tells that the process lives.
func Create(dir, program string, generation uint64, lossy bool) (*Book, error) {
	started := Now()
	path := filepath.Join(dir, fmt.Sprintf("%s-%d-%d", program, os.Getpid(), started))
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(int64(unsafe.Sizeof(Sheet{}))), unix.Flock(int(f.Fd()), unix.LOCK_EX)); err != nil {
		return nil, err
	}
	page, err := mapped(f, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	page.magic, page.PID, page.Generation, page.Started = magic, uint64(os.Getpid()), generation, started
	if lossy {
		page.Lossy = 1
	}
	copy(page.program[:], program)
	b := &Book{Sheet: page, file: f}
	for i := range page.Entries {
		b.free = append(b.free, &page.Entries[room-1-i])
	}
	return b, os.Rename(path+".new", path)
}

// Take notes a connection, or a datagram, of a client. It returns nil if there is no room.
func (b *Book) Take(port int) *Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Accepted.Add(1)
	if len(b.free) == 0 {
		b.Full.Add(1)
		return nil
	}
	e := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	e.Since.Store(Now())
	e.Port.Store(uint64(port))
	return e
}

// Drop notes that a connection was closed.
func (b *Book) Drop(e *Row) {
	if e == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Port.Store(0)
	e.ID.Store(0)
	e.Last.Store(0)
	b.free = append(b.free, e)
}

// Begin notes that a request was read.
func (b *Book) Begin(e *Row, id uint64) {
	b.Begun.Add(1)
	if e != nil {
		e.ID.Store(id)
	}
}

// End notes that the kernel has taken the whole answer.
func (b *Book) End(e *Row, id uint64) {
	if e != nil {
		e.Last.Store(id)
		e.ID.Store(0)
	}
	b.Answered.Add(1)
}

// Seen is an account as others read it.
type Seen struct {
	*Sheet
	file *os.File
}

// Open maps an account for reading.
func Open(path string) (*Seen, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	page, err := mapped(f, unix.PROT_READ)
	if err == nil && page.magic != magic {
		err = fmt.Errorf("%s is not an account", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Seen{page, f}, nil
}

// Ended reports whether the worker's process has ended.
func (s *Seen) Ended() bool { return unix.Flock(int(s.file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }

// Close gives the memory back. Nothing of the Sheet may be read any more.
func (s *Seen) Close() error {
	raw := unsafe.Slice((*byte)(unsafe.Pointer(s.Sheet)), unsafe.Sizeof(Sheet{}))
	s.Sheet = nil
	return errors.Join(unix.Munmap(raw), s.file.Close())
}

func mapped(f *os.File, protection int) (*Sheet, error) {
	size := int(unsafe.Sizeof(Sheet{}))
	if info, err := f.Stat(); err != nil || info.Size() != int64(size) {
		return nil, errors.Join(fmt.Errorf("%s has another size than an account", f.Name()), err)
	}
	raw, err := unix.Mmap(int(f.Fd()), 0, size, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*Sheet)(unsafe.Pointer(unsafe.SliceData(raw))), nil
}

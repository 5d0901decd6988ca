package worker

import (
	"fmt"
	"sync"
	"time"
)

// gate is a read-write lock that gives up: whoever locks it waits only so long for those who hold it for reading.
type gate struct {
	mu      sync.Mutex
	readers int
	locked  chan struct{} // closed by Unlock; nil: it is not locked
	free    chan struct{} // closed when the last reader has gone; nil: nobody waits for that
}

// RLock waits while the gate is locked.
func (g *gate) RLock() {
	for {
		g.mu.Lock()
		locked := g.locked
		if locked == nil {
			g.readers++
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		<-locked
	}
}

// RUnlock undoes RLock.
func (g *gate) RUnlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readers--
	if g.readers == 0 && g.free != nil {
		close(g.free)
		g.free = nil
	}
}

// LockWithin locks the gate when nobody holds it any more, or gives up. It is for one goroutine.
func (g *gate) LockWithin(patience time.Duration) bool {
	g.mu.Lock()
	g.locked = make(chan struct{})
	var free chan struct{}
	if g.readers > 0 {
		free = make(chan struct{})
		g.free = free
	}
	g.mu.Unlock()
	if free == nil {
		return true
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-free:
		return true
	case <-timeout.C:
		g.Unlock()
		return false
	}
}

// Unlock lets everyone in again.
func (g *gate) Unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.locked)
	g.locked, g.free = nil, nil
}

// Locked reports whether it is locked, or about to be.
func (g *gate) Locked() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.locked != nil
}

// lock is a mutex for which nobody has to wait longer than he likes. make(lock, 1) makes one.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

func (l lock) LockWithin(patience time.Duration) bool {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case l <- struct{}{}:
		return true
	case <-timeout.C:
		return false
	}
}

// Freeze stops reading and reaping until Thaw: what workers say and their ends then wait in the kernel, so that State is
// complete and an execve of this process loses nothing. It waits at most patience for what is under way, such as a fork; an
// error means that nothing has changed.
func (l *Launcher) Freeze(patience time.Duration) error {
	if !l.gate.LockWithin(patience) {
		return fmt.Errorf("cannot stop reading from the workers: what is under way has not ended within %s", patience)
	}
	if !l.spawning.LockWithin(patience) {
		l.gate.Unlock()
		return fmt.Errorf("cannot stop reading from the workers: a fork has not ended within %s", patience)
	}
	return nil
}

// Thaw undoes Freeze.
func (l *Launcher) Thaw() {
	l.spawning.Unlock()
	l.gate.Unlock()
}

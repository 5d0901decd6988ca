package worker

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"example.org/supervisord/worker/output"
)

// gate is a read-write lock whose writer gives up: it waits only so long for the readers.
type gate struct {
	mu      sync.Mutex
	readers int
	locked  chan struct{} // closed by Unlock; nil: not locked
	free    chan struct{} // closed when the last reader has gone; nil: nothing waits for that
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

// LockWithin locks the gate when no reader holds it any more, or gives up. It is for one goroutine.
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
		return false
	}
}

// Unlock lets every reader in again.
func (g *gate) Unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.locked)
	g.locked, g.free = nil, nil
}

// Locked reports whether the gate is locked, or about to be.
func (g *gate) Locked() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.locked != nil
}

// lock is a mutex that can be waited for with a timeout. make(lock, 1) makes one.
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

// Freeze stops reading and reaping until Thaw: what workers say, and their ends, then wait in the kernel, so that State is complete and
// an execve of this process loses nothing. Freeze waits at most patience for what is under way, such as a fork. On error nothing has
// changed.
func (l *Launcher) Freeze(patience time.Duration) error {
	if !l.gate.LockWithin(patience) {
		defer l.gate.Unlock()
		if stuck := l.stuckPumps(); len(stuck) > 0 {
			return fmt.Errorf("cannot stop reading from the workers within %s: the process that writes to it keeps the pipe locked that is %s: "+
				"end these processes with kill -9 and try again", patience, strings.Join(stuck, ", "))
		}
		return fmt.Errorf("cannot stop reading from the workers: what is under way has not ended within %s", patience)
	}
	if !l.spawning.LockWithin(patience) {
		l.gate.Unlock()
		return fmt.Errorf("cannot stop reading from the workers: a fork has not ended within %s", patience)
	}
	return nil
}

// stuckPumps names the streams whose pipe a writer keeps locked while it is read. The gate is about to be locked, so no other read begins.
func (l *Launcher) stuckPumps() (stuck []string) {
	l.pids.Range(func(pid, w any) bool {
		for _, p := range w.(*Worker).reading() {
			stuck = append(stuck, fmt.Sprintf("%s of process %d", p.Stream(), pid))
		}
		return true
	})
	return stuck
}

// reading returns the pumps that are in the middle of a read.
func (w *Worker) reading() (pumps []*output.Pump) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pumps {
		if p.Reading() {
			pumps = append(pumps, p)
		}
	}
	return pumps
}

// Thaw undoes Freeze.
func (l *Launcher) Thaw() {
	l.spawning.Unlock()
	l.gate.Unlock()
}

package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// stamps is what workers of package light wrote down: by generation, when the first of them began, the last of them said ready,
// and the last of them got TERM; nanoseconds of the monotonic clock.
type stamps map[int]*moments

type moments struct{ main, ready, term int64 }

func readStamps(path string) (stamps, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := stamps{}
	in := bufio.NewScanner(f)
	for in.Scan() {
		var what string
		var generation, pid int
		var at int64
		if _, err := fmt.Sscan(in.Text(), &what, &generation, &pid, &at); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, in.Text(), err)
		}
		all.add(what, generation, at)
	}
	return all, in.Err()
}

func (s stamps) add(what string, generation int, at int64) {
	m := s[generation]
	if m == nil {
		m = &moments{}
		s[generation] = m
	}
	switch what {
	case "main":
		if m.main == 0 || at < m.main {
			m.main = at
		}
	case "ready":
		m.ready = max(m.ready, at)
	case "term":
		m.term = max(m.term, at)
	}
}

// answers is when each generation answered first.
type answers struct {
	mu    sync.Mutex
	first map[int]int64
}

func newAnswers() *answers { return &answers{first: map[int]int64{}} }

func (a *answers) seen(body []byte) {
	at := monotonic()
	generation, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first[generation] == 0 {
		a.first[generation] = at
	}
}

// reload is one reload, seen from outside.
type reload struct{ hup, told int64 } // told: when the log said that the new generation serves

func (b *bench) measureHandover() error {
	dir, err := b.folder()
	if err != nil {
		return err
	}
	f, err := b.newFloor(dir)
	if err != nil {
		return err
	}
	defer f.close()
	reloads, first, s, err := b.watchReloads(dir, b.less(200, 20), f)
	if err != nil {
		return err
	}
	b.handoverRows(reloads, first, s, f)
	return nil
}

// watchReloads reloads n times, one after the other, while one client asks again and again who is there.
func (b *bench) watchReloads(dir string, n int, f *floor) (map[int]reload, map[int]int64, stamps, error) {
	path := filepath.Join(dir, "stamps")
	program := fmt.Sprintf("command = [%q]\nworkers = 2\nready = { method = \"notify\" }\nenvironment = { BENCH_STAMPS = %q }", b.light, path)
	m, err := b.startMaster(dir, program, "")
	if err != nil {
		return nil, nil, nil, err
	}
	defer m.abandon()
	if _, err := m.await(serves, 1); err != nil {
		return nil, nil, nil, err
	}
	seen := newAnswers()
	client := chat(m.address, 1, seen.seen)
	defer client.end()
	reloads := map[int]reload{}
	for g := 2; g < n+2; g++ {
		if reloads[g], err = m.watchReload(g); err != nil {
			return nil, nil, nil, err
		}
		if err := b.once(f, g); err != nil {
			return nil, nil, nil, err
		}
	}
	client.end()
	if client.failed.Load() > 0 {
		return nil, nil, nil, fmt.Errorf("%d requests failed: %w", client.failed.Load(), *client.first.Load())
	}
	if _, err := m.stop(); err != nil {
		return nil, nil, nil, err
	}
	s, err := readStamps(path)
	return reloads, seen.first, s, err
}

// watchReload reloads into generation g.
func (m *master) watchReload(g int) (reload, error) {
	at, err := m.hup()
	if err != nil {
		return reload{}, err
	}
	told, err := m.await(serves, g)
	if err != nil {
		return reload{}, err
	}
	_, err = m.await(gone, g-1)
	return reload{at, told.at}, err
}

func (b *bench) handoverRows(reloads map[int]reload, first map[int]int64, s stamps, f *floor) {
	var toMain, toReady, toTerm, toFirst, told, term, answered spread
	for g, r := range reloads {
		now, old := s[g], s[g-1]
		if now == nil || old == nil {
			continue
		}
		toMain = append(toMain, time.Duration(now.main-r.hup))
		toReady = append(toReady, time.Duration(now.ready-r.hup))
		toTerm = append(toTerm, time.Duration(old.term-r.hup))
		told = append(told, time.Duration(r.told-now.ready))
		term = append(term, time.Duration(old.term-now.ready))
		if at := first[g]; at > 0 {
			toFirst = append(toFirst, time.Duration(at-r.hup))
			answered = append(answered, time.Duration(at-now.ready))
		}
	}
	const most = 5 * time.Millisecond
	n := len(term)
	b.row(fmt.Sprintf("last READY=1 → the new generation serves (log line read), %d reloads, p50 / p99 / max", n), "≤ 5 ms (p99)", told.String(), verdictOf(told.at(0.99) <= most))
	b.row("last READY=1 → the last old worker has TERM", "≤ 5 ms (p99)", term.String(), verdictOf(term.at(0.99) <= most))
	b.row("the same by a loop of 20 lines: one datagram, then kill(2)", "", f.term.String(), nothing)
	b.row("last READY=1 → first answer of the new generation", "", answered.String(), nothing)
	b.row("HUP → the worker's main begins", "", toMain.String(), nothing)
	b.row("the same worker by a bare fork and exec → READY=1", "", f.boot.String(), nothing)
	b.row("HUP → last READY=1, two workers", "", fmt.Sprintf("%s; beyond the worker's own boot %s", toReady, short(toReady.at(0.5)-f.boot.at(0.5))), nothing)
	b.row("HUP → the last old worker has TERM", "", toTerm.String(), nothing)
	b.row("HUP → first answer of the new generation", "", toFirst.String(), nothing)
}

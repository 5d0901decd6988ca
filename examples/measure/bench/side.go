package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/systemd"
)

// suite is the Debian release with whose systemd the bench measures.
const suite = "trixie"

// side is one of the supervisords that are compared.
type side struct {
	kit.Setup
	before bool // it is the build of --before
}

// String is what the names of its rows end in.
func (s side) String() string {
	if s.Lab != nil {
		return ", under systemd"
	}
	return ""
}

// with returns the side with more keys of the table supervisor.
func (s side) with(keys string) side {
	s.Keys = keys
	return s
}

// sides returns what a part measures, without systemd first and the build of before last.
func (b *bench) sides(p part) (all []side, err error) {
	binaries := []string{b.now}
	if b.before != "" {
		binaries = append(binaries, b.before)
	}
	if p.place != "systemd" {
		for i, binary := range binaries {
			all = append(all, side{kit.Setup{Binary: binary}, i > 0})
		}
	}
	if !p.systemd || p.place == "plain" {
		return all, nil
	}
	if err := b.boot(); err != nil {
		return all, err
	}
	for i, binary := range binaries {
		all = append(all, side{kit.Setup{Binary: binary, Lab: b.lab}, i > 0})
	}
	return all, nil
}

// boot boots the systemd that all parts use.
func (b *bench) boot() (err error) {
	if b.lab != nil {
		return nil
	}
	root, err := kit.SourceTree(context.Background())
	if err != nil {
		return err
	}
	if b.lab, err = systemd.Boot(filepath.Join(root, "tests/systemd/lab"), suite); err != nil {
		return err
	}
	return kit.Setup{Lab: b.lab}.Install(b.light)
}

// serve starts supervisord with a program and waits until it serves.
func (s side) serve(ctx context.Context, worker, workers, keys, listener string) (*kit.Subject, error) {
	return s.Serve(ctx, table(worker, workers, keys, listener))
}

// table is a program with one listener, and more keys for both.
func table(worker, workers, keys, listener string) kit.ProgramTable {
	return kit.ProgramTable{Command: []string{worker}, Workers: workers, More: keys,
		Listen: []kit.ListenTable{{Name: "http", More: listener}}}
}

// errSlow ends a wait for something that takes longer than anybody wants to know.
var errSlow = errors.New("too slow")

// within calls begin and then wait with a limit. slow says that it took longer.
func within(ctx context.Context, limit time.Duration, begin func() error, wait func(context.Context) error) (slow bool,
	err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	if err := begin(); err != nil {
		return false, err
	}
	if err = wait(ctx); errors.Is(err, errSlow) {
		return true, nil
	}
	return false, err
}

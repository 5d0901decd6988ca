package supervisor

import (
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// deafSystemd accepts no message while err is set.
type deafSystemd struct {
	fakeSystemd
	err error
}

func (s *deafSystemd) Status(string) error { return s.err }

func TestDeafSystemdIsReportedOnce(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	systemd := &deafSystemd{fakeSystemd: fakeSystemd{fakeStore: fakeStore{}, TB: t}, err: errors.New("no such file")}
	s := New(Options{Systemd: systemd, Log: zap.New(core)})
	tell := func() {
		s.notifier.status = "something else"
		s.tell()
	}
	s.notifier.ready = true
	for range 3 {
		tell()
	}
	if got := len(logs.TakeAll()); got != 1 {
		t.Errorf("three messages that were not taken make %d warnings, want 1", got)
	}
	systemd.err = nil
	tell()
	systemd.err = errors.New("no such file")
	tell()
	if got := len(logs.TakeAll()); got != 1 {
		t.Errorf("after an accepted message there are %d warnings, want 1", got)
	}
}

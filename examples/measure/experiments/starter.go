package main

import (
	"context"
	"os/exec"

	"golang.org/x/sys/unix"
)

// starter is a Perl start_server, where one is installed (Debian: libserver-starter-perl).
type starter struct{ *alone }

// startStarter starts a worker under start_server; nil without an error when it is not installed. It takes a worker that has
// lived for a second for ready: that is its default.
func startStarter(ctx context.Context, address string, command ...string) (*starter, error) {
	path, err := exec.LookPath("start_server")
	if err != nil {
		return nil, nil //nolint:nilerr // the report says that it is left out
	}
	a, err := startAlone(ctx, address, append([]string{path, "--port", address, "--"}, command...)...)
	if err != nil {
		return nil, err
	}
	return &starter{a}, nil
}

func (s *starter) hup() error { return s.signal(unix.SIGHUP) }

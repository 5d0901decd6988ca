package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/lab/must"
)

func TestConfigurationThatDoesNotExistIsNamedWhenAnotherSupervisordAnswers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.toml")
	a := &asking{path: &file}
	other := &control.APIError{Code: control.OtherConfig}
	if err := a.missing(other); !strings.HasPrefix(err.Error(), "there is no "+file+", and ") ||
		exitCode(err) != exitUnavailable {
		t.Errorf("got %v, exit status %d", err, exitCode(err))
	}
	if err := a.missing(&control.APIError{Code: control.Stopping}); strings.Contains(err.Error(), file) {
		t.Errorf("another failure is told as %v", err)
	}
	must.Do(t, os.WriteFile(file, nil, 0o600))
	if err := a.missing(other); err != other {
		t.Errorf("with the file: %v", err)
	}
}

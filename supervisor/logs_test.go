package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/siginfo"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker/output"
)

func capturing(t *testing.T, path string) *config.Program {
	p := testProgram(t, "web")
	p.Stdout.Kind = output.Capture
	p.Log = config.LogPolicy{File: path, MaxSize: 1 << 20}
	return p
}

func TestCapturedOutputContinuesOverReloads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.log")
	p := capturing(t, path)
	onStage(t, func(s *stage) {
		s.workers()[0].spec.Captured("stdout", 11, []byte("one\n"))
		s.workers()[0].ready()
		s.hup()
		s.workers()[1].spec.Captured("stdout", 12, []byte("two\n"))
		log, err := s.super.Logs(s.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		lines, _ := log.Last(10)
		if len(lines) != 2 || lines[0].Text != "one" || lines[0].Worker != 1 || lines[1].Worker != 2 || lines[1].PID != 12 {
			t.Errorf("%+v", lines)
		}
		if err := log.Flush(s.Context()); err != nil {
			t.Error(err)
		}
		if data, _ := os.ReadFile(path); string(data) != "one\ntwo\n" {
			t.Errorf("%q", data)
		}
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		s.reopen <- siginfo.Caught{Number: syscall.SIGUSR1}
		synctest.Wait()
		s.workers()[1].spec.Captured("stdout", 12, []byte("three\n"))
	}, p)
	if data, _ := os.ReadFile(path); string(data) != "three\n" {
		t.Errorf("after USR1: %q", data)
	}
}

func TestLogFileThatCannotBeOpenedFailsTheReload(t *testing.T) {
	dir := t.TempDir()
	good := capturing(t, filepath.Join(dir, "web.log"))
	onStage(t, func(s *stage) {
		s.workers()[0].ready()
		bad := *good
		bad.Log.File = filepath.Join(dir, "no", "web.log")
		s.conf = configOf(&bad)
		s.hup()
		s.count(1)
		failed := s.logs.FilterMessage(program.TrialFailed.Sentence()).All()
		if len(failed) != 1 || !strings.Contains(failed[0].ContextMap()["reason"].(string), "no such file or directory") {
			t.Errorf("logged %v", failed)
		}
		s.workers()[0].spec.Captured("stdout", 11, []byte("still\n"))
	}, good)
	if data, _ := os.ReadFile(good.Log.File); string(data) != "still\n" {
		t.Errorf("%q", data)
	}
}

func TestLogsOfUncapturedProgramAreRefused(t *testing.T) {
	onStage(t, func(s *stage) {
		if _, err := s.super.Logs(s.Context(), "web"); !errors.Is(err, ErrState) {
			t.Errorf("%v", err)
		}
		if _, err := s.super.Logs(s.Context(), "wbe"); !errors.Is(err, ErrNoProgram) {
			t.Errorf("%v", err)
		}
	}, testProgram(t, "web"))
}

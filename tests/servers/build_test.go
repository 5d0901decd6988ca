package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// Built servers run on this machine, not in the root, because they may need the C library of this machine. scripts/test
// builds the slow ones beforehand, so that their tests need not.

// cache is the directory that keeps built servers for the next run.
func cache(t testing.TB) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	lab.Must(t, err)
	return filepath.Join(dir, "supervisord-servers")
}

func rustProgram(t testing.TB) string {
	t.Helper()
	return kept(t, "rust/release/server", "cargo build of examples/servers/rust")
}

// goProgram builds examples/servers/go.
func goProgram(t testing.TB) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "server")
	c := exec.Command("go", "build", "-o", program, filepath.Join(examples, "go/server.go"))
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
	return program
}

// jars brings the servers in Java with the jars that they need, as scripts/test has built them with Maven.
func jars(s *site) { s.made("jvm", "jvm/target") }

// next brings the application for Next.js, as scripts/test has built it with npm.
func next(s *site) {
	s.made("next", "next")
	s.here = true
}

func denoProgram(t testing.TB) string {
	t.Helper()
	return kept(t, "deno-2.9.6", "npm pack @deno/linux-x64-glibc of this version")
}

func exporterProgram(t testing.TB) string {
	t.Helper()
	return kept(t, "node_exporter-v1.9.1", "go install github.com/prometheus/node_exporter of this version")
}

// kept returns the program of this name and version that scripts/test keeps; the test is skipped if it is missing.
func kept(t testing.TB, name, remedy string) string {
	t.Helper()
	program := filepath.Join(cache(t), name)
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%s is missing: %s, and move it there", program, remedy)
	}
	return program
}

// made brings what scripts/test has made of an example and keeps for the next runs; the test is skipped if it is
// missing.
func (s *site) made(example, dir string) {
	s.T.Helper()
	from := filepath.Join(cache(s.T), example)
	if _, err := os.Stat(from); err != nil {
		s.T.Skipf("%s is missing: build_example in scripts/test makes it of examples/servers/%s", from, example)
	}
	to := s.Path(dir)
	lab.Must(s.T, os.RemoveAll(to))
	if out, err := exec.Command("cp", "-al", from, to).CombinedOutput(); err != nil {
		// links, unless it is another filesystem
		if more, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
			s.T.Fatalf("%v\n%s%s", err, out, more)
		}
	}
}

// caddyVersion is the version that scripts/test builds.
const caddyVersion = "v2.10.2"

// caddyProgram returns the installed Caddy, or the one that scripts/test has built.
func caddyProgram(t testing.TB) string {
	t.Helper()
	program := filepath.Join(cache(t), "caddy-"+caddyVersion)
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("caddy"); err != nil {
			t.Skipf("caddy is not installed: GOBIN=/somewhere go install github.com/caddyserver/caddy/v2/cmd/caddy@%s",
				caddyVersion)
		}
	}
	if out, err := exec.Command(program, "version").Output(); err != nil || strings.HasPrefix(string(out), "2.6") {
		t.Skipf("%s cannot take an inherited socket, 2.10 and newer can: it says %q (%v)", program, out, err)
	}
	return program
}

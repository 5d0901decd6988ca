package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// Built servers run on this machine, not in the root, because they may need the C library of this machine. scripts/test builds the slow
// ones beforehand, so that their tests need not.

// cache is the directory that keeps built servers for the next run.
func cache(t testing.TB) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	lab.Must(t, err)
	return filepath.Join(dir, "supervisord-servers")
}

// fetched runs the command that downloads the dependencies of a build, and skips the test if it fails.
func fetched(t testing.TB, argv ...string) {
	t.Helper()
	if _, err := exec.LookPath(argv[0]); err != nil {
		t.Skipf("%s is not installed", argv[0])
	}
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Skipf("cannot download the dependencies of the build: %s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

func compile(t testing.TB, argv ...string) {
	t.Helper()
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	if strings.Contains(string(out), "requires rustc") {
		t.Skipf("cargo is too old: %s", out)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

// brought puts a built program into the copy of the example, where its configuration expects it.
func (s *site) brought(program, at string) {
	s.t.Helper()
	text, err := os.ReadFile(program)
	lab.Must(s.t, err)
	lab.Must(s.t, os.MkdirAll(filepath.Dir(s.path(at)), 0o755))
	lab.Must(s.t, os.WriteFile(s.path(at), text, 0o755))
	s.here = true
}

func TestRustServerLosesNoRequest(t *testing.T) {
	t.Parallel()
	program := rustProgram(t)
	s := prepare(t, "rust")
	s.brought(program, "rust/target/release/listenfd-example")
	s.launch()
	lossless(s, "127.0.0.1:8120", 6)
}

func rustProgram(t testing.TB) string {
	t.Helper()
	manifest, target := filepath.Join(examples, "rust/Cargo.toml"), filepath.Join(cache(t), "rust")
	fetched(t, "cargo", "fetch", "--quiet", "--manifest-path", manifest)
	compile(t, "cargo", "build", "--quiet", "--release", "--manifest-path", manifest, "--target-dir", target)
	return filepath.Join(target, "release/listenfd-example")
}

// The losses of the other way to stop, which docs/servers.md quotes.
func TestRustServerWithItsOwnGracefulStopLosesKeptConnectionsOnly(t *testing.T) {
	t.Parallel()
	program := rustProgram(t)
	s := patient(t, "rust")
	s.brought(program, "rust/target/release/listenfd-example")
	s.replace("rust.toml", `listenfd-example"]`, `listenfd-example", "--graceful"]`)
	s.launch()
	lossy(s, "127.0.0.1:8120", map[string]float64{"kept": 12})
}

func TestGoServerOnActivationLosesNoRequest(t *testing.T) {
	t.Parallel()
	s := goActivation(prepare(t, "go-activation"))
	s.launch()
	lossless(s, "127.0.0.1:8121", 6)
}

func goActivation(s *site) *site {
	t := s.t
	t.Helper()
	module := filepath.Join(examples, "go-activation")
	fetched(t, "go", "-C", module, "mod", "download")
	program := filepath.Join(t.TempDir(), "go-activation")
	compile(t, "go", "build", "-C", module, "-o", program, ".")
	s.brought(program, "go-activation/go-activation")
	return s
}

// The losses of the other way to stop, which docs/servers.md quotes.
func TestGoServerThatStopsByShutdownLosesKeptConnectionsOnly(t *testing.T) {
	t.Parallel()
	s := goActivation(patient(t, "go-activation"))
	s.replace("go-activation.toml", `go-activation"]`, `go-activation", "-shutdown"]`)
	s.launch()
	lossy(s, "127.0.0.1:8121", map[string]float64{"kept": 12})
}

// Caddy drops a request on a connection that was accepted but silent when the stop began (golang/go#75591), so it must have none.
func TestCaddyThatAnnouncesItsStopLosesNoRequest(t *testing.T) {
	t.Parallel()
	s := caddy(t)
	s.replace("caddy/Caddyfile", "shutdown_delay 5s", "shutdown_delay 800ms") // these clients send their next request within 60 ms
	s.launch()
	l := s.press(web(s.serves().at("127.0.0.1:8118"), get("/", answer))...)
	s.redeploy()
	l.lossless()
}

// caddyVersion is the version that scripts/test builds.
const caddyVersion = "v2.10.2"

// caddy prepares the example with caddyProgram.
func caddy(t *testing.T) *site {
	t.Helper()
	program := caddyProgram(t)
	s := prepare(t, "caddy")
	s.brought(program, "bin/caddy")
	return s
}

// caddyProgram returns the installed Caddy, or the one that scripts/test has built.
func caddyProgram(t testing.TB) string {
	t.Helper()
	program := filepath.Join(cache(t), "caddy-"+caddyVersion)
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("caddy"); err != nil {
			t.Skipf("caddy is not installed: GOBIN=/somewhere go install github.com/caddyserver/caddy/v2/cmd/caddy@%s", caddyVersion)
		}
	}
	if out, err := exec.Command(program, "version").Output(); err != nil || strings.HasPrefix(string(out), "2.6") {
		t.Skipf("%s cannot take an inherited socket, 2.10 and newer can: it says %q (%v)", program, out, err)
	}
	return program
}

package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// Servers that are built and not unpacked run on this machine and not in the root: what the compilers here make may need the C
// library of here. scripts/test builds the slow ones beforehand; a test that finds them built takes no time for it.

// cache is where what is built is kept for the next run.
func cache(t testing.TB) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	lab.Must(t, err)
	return filepath.Join(dir, "supervisord-servers")
}

// fetched runs the command that fetches what is needed for a build, and skips the test if that cannot be had.
func fetched(t testing.TB, argv ...string) {
	t.Helper()
	if _, err := exec.LookPath(argv[0]); err != nil {
		t.Skipf("%s is not installed", argv[0])
	}
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Skipf("what is needed for the build cannot be fetched: %s: %v\n%s", strings.Join(argv, " "), err, out)
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

// brought puts a program that was built into the copy of the example, where its configuration looks for it.
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

// What the other way of stopping costs, which docs/servers.md quotes.
func TestRustServerWithItsOwnGracefulStopLosesRequests(t *testing.T) {
	t.Parallel()
	program := rustProgram(t)
	s := prepare(t, "rust")
	s.brought(program, "rust/target/release/listenfd-example")
	s.replace("rust.toml", `listenfd-example"]`, `listenfd-example", "--graceful"]`)
	s.launch()
	lossy(s, "127.0.0.1:8120", map[string]float64{"new": 12, "kept": 12, "slow": 6})
}

func TestGoServerOnActivationLosesNoRequest(t *testing.T) {
	t.Parallel()
	s := goActivation(t)
	s.launch()
	lossless(s, "127.0.0.1:8121", 6)
}

func goActivation(t *testing.T) *site {
	t.Helper()
	module := filepath.Join(examples, "go-activation")
	fetched(t, "go", "-C", module, "mod", "download")
	program := filepath.Join(t.TempDir(), "go-activation")
	compile(t, "go", "build", "-C", module, "-o", program, ".")
	s := prepare(t, "go-activation")
	s.brought(program, "go-activation/go-activation")
	return s
}

// What the other way of stopping costs, which docs/servers.md quotes.
func TestGoServerThatStopsByShutdownLosesRequests(t *testing.T) {
	t.Parallel()
	s := goActivation(t)
	s.replace("go-activation.toml", `go-activation"]`, `go-activation", "-shutdown"]`)
	s.launch()
	lossy(s, "127.0.0.1:8121", map[string]float64{"new": 12, "kept": 12, "slow": 6})
}

// Caddy drops a request that comes on a connection which was accepted, and silent, when it began to stop (golang/go#75591).
func TestCaddyLosesNoRequestOnAKeptConnection(t *testing.T) {
	t.Parallel()
	s := caddy(t)
	s.replace("caddy/Caddyfile", "shutdown_delay 5s", "shutdown_delay 800ms") // the clients here come back within 60 ms
	s.launch()
	l := s.press(web(s.serves().at("127.0.0.1:8118"), get("/", answer))...)
	s.redeploy()
	l.lossy(map[string]float64{"new": 8})
}

// caddyVersion is the one that scripts/test builds.
const caddyVersion = "v2.10.2"

// caddy prepares its example with the Caddy of this machine, or the one that scripts/test has built.
func caddy(t *testing.T) *site {
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
	s := prepare(t, "caddy")
	s.brought(program, "bin/caddy")
	return s
}

package servers

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
)

// The servers of naive/ do on TERM what their authors have them do: no hook, no setting and no signal of ours. Two
// tests for all: 1,000 clients that connect for every request while a HUP comes each second, and the load of the other
// tests, which also keeps connections.

// naives is the directory with the configurations.
const naives = "naive"

// unaware is a naive server.
type unaware struct {
	name      string // of the configuration
	address   string
	slow      string // the path that takes 0.3 s; "": there is none
	want      string // part of the answer; "": generation=
	pkg, file string // the Debian package without which the tests are skipped, and a file of it; "": program makes it
	program   func(t testing.TB) string
	at        string // where the configuration expects the program
	elsewhere bool   // its storm
}

// prepare prepares a site with the server.
func (u unaware) prepare(t *testing.T) *site {
	t.Helper()
	if u.program == nil {
		needs(t, u.pkg, u.file)
		return prepareFrom(t, naives, u.name)
	}
	program := u.program(t)
	s := prepareFrom(t, naives, u.name)
	s.brought(program, u.at)
	return s
}

func (u unaware) ask(path string) load.Ask { return get(path, cmp.Or(u.want, answer)) }

// storm is 1,000 clients with a new connection for each request, and a HUP each second.
func (u unaware) storm(t *testing.T) {
	t.Helper()
	s := u.prepare(t)
	s.launch()
	s.serves()
	clients := lab.Clients{Count: 1000, Dial: load.Dial(s.at(u.address)), Ask: u.ask("/")}
	blow(s, lab.Storm{Clients: clients, Requests: 100_000, Every: time.Second}).Lossless(t, u.name, &s.log)
}

// blow reloads the site by HUP under a storm.
func blow(s *site, storm lab.Storm) lab.Toll {
	s.t.Helper()
	return storm.Blow(s.t, func() { s.child.Cmd.Process.Signal(syscall.SIGHUP) }, func() int {
		served, _ := s.log.All(lab.Says(lab.GenerationServes))
		return len(served) - 1
	})
}

// kept is the load of the other tests. New connections and slow requests lose nothing; a keep-alive connection may lose
// a request in the instant in which its server closes it.
func (u unaware) kept(t *testing.T) {
	t.Helper()
	s := u.prepare(t)
	s.drain("5s")
	s.launch()
	at := s.serves().at(u.address)
	all := web(at, u.ask("/"))
	if u.slow != "" {
		all = append(all, slow(at, u.ask(u.slow)))
	}
	l := s.press(all...)
	s.redeploy()
	l.lossy(map[string]float64{"kept": 12})
}

// unawares are the naive servers. The two in Go have their storm in tests/naive.
func unawares() []unaware {
	return []unaware{
		{name: "go", address: "127.0.0.1:8140", slow: "/slow", program: naiveProgram, at: "bin/naive", elsewhere: true},
		{name: "go-die", address: "127.0.0.1:8141", slow: "/slow", program: naiveProgram, at: "bin/naive", elsewhere: true},
		{name: "python", address: "127.0.0.1:8142", slow: "/slow", pkg: "python3", file: "/usr/bin/python3"},
		{name: "node", address: "127.0.0.1:8143", slow: "/slow", program: nodeProgram, at: "bin/node"},
		{name: "starman", address: "127.0.0.1:8144", slow: "/slow", pkg: "starman", file: "/usr/bin/starman"},
		{name: "caddy", address: "127.0.0.1:8145", program: caddyProgram, at: "bin/caddy"},
		{name: "axum", address: "127.0.0.1:8146", slow: "/slow", program: rustProgram, at: "bin/axum"},
		{name: "node_exporter", address: "127.0.0.1:8147", want: "Node Exporter", program: exporterProgram,
			at: "bin/node_exporter"},
	}
}

// naiveProgram builds examples/measure/naive.
func naiveProgram(t testing.TB) string {
	t.Helper()
	program := filepath.Join(built, "naive")
	compile(t, "go", "build", "-C", "../../examples", "-o", program, "./measure/naive")
	return program
}

// exporterVersion is the version of node_exporter that scripts/test builds.
const exporterVersion = "v1.9.1"

func exporterProgram(t testing.TB) string {
	t.Helper()
	program := filepath.Join(cache(t), "node_exporter-"+exporterVersion)
	if _, err := os.Stat(program); err != nil {
		t.Skipf("node_exporter is not built: GOBIN=/somewhere go install github.com/prometheus/node_exporter@%s, and move "+
			"it to %s", exporterVersion, program)
	}
	return program
}

// nodeProgram returns this machine's Node. The root has Node 18, whose server.close() waits for keep-alive connections
// as long as their clients use them.
func nodeProgram(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	out, err := exec.Command(program, "-p", "process.versions.node.split('.')[0]").Output()
	if major, _ := strconv.Atoi(strings.TrimSpace(string(out))); err != nil || major < 19 {
		t.Skipf("server.close() closes idle connections since Node 19; %s is Node %s (%v)", program,
			strings.TrimSpace(string(out)), err)
	}
	return program
}

func TestServersStoppedByTERMLoseNoNewConnection(t *testing.T) {
	for _, u := range unawares() {
		if !u.elsewhere {
			t.Run(u.name, u.storm)
		}
	}
}

func TestServersStoppedByTERMLoseKeptConnectionsOnly(t *testing.T) {
	t.Parallel()
	for _, u := range unawares() {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			u.kept(t)
		})
	}
}

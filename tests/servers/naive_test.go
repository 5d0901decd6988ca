package servers

import (
	"os/exec"
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

// unaware are the naive servers. The two in Go have their storm in tests/naive.
func unaware() []server {
	return []server{
		{example: "go", address: "127.0.0.1:8140", slowly: slowPage, slow: 6, program: naiveProgram, at: "bin/naive"},
		{example: "go-die", address: "127.0.0.1:8141", slowly: slowPage, slow: 6, program: naiveProgram, at: "bin/naive"},
		{example: "python", address: "127.0.0.1:8142", slowly: slowPage, slow: 6, pkg: "python3", file: "/usr/bin/python3"},
		{example: "node", address: "127.0.0.1:8143", slowly: slowPage, slow: 6, program: nodeProgram, at: "bin/node"},
		{example: "starman", address: "127.0.0.1:8144", slowly: slowPage, slow: 6, pkg: "starman",
			file: "/usr/bin/starman"},
		{example: "caddy", address: "127.0.0.1:8145", program: caddyProgram, at: "bin/caddy"},
		{example: "axum", address: "127.0.0.1:8146", slowly: slowPage, slow: 6, program: rustProgram, at: "bin/axum"},
		{example: "node_exporter", address: "127.0.0.1:8147", ask: get("/", "Node Exporter"), program: exporterProgram,
			at: "bin/node_exporter"},
	}
}

// TestServersStoppedByTERMLoseNoNewConnection has 1,000 clients with a new connection for each request, and a HUP each
// second, for two of the servers without -long.
func TestServersStoppedByTERMLoseNoNewConnection(t *testing.T) {
	for _, c := range unaware() {
		if c.at == "bin/naive" || !lab.Long() && c.example != "python" && c.example != "node" {
			continue
		}
		t.Run(c.example, func(t *testing.T) {
			s := c.prepared(t, naives)
			s.drain("1m")
			s.launch()
			s.serves()
			clients := lab.Clients{Count: 1000, Dial: load.Dial(s.at(c.address)), Ask: c.asks()}
			blow(s, lab.Storm{Clients: clients, Requests: 100_000, Every: time.Second}).Lossless(t, c.example, s.Log)
		})
	}
}

// TestServersStoppedByTERMLoseKeptConnectionsOnly has the load of the other tests. New connections and slow requests
// lose nothing; a keep-alive connection may lose a request in the instant in which its server closes it.
func TestServersStoppedByTERMLoseKeptConnectionsOnly(t *testing.T) {
	t.Parallel()
	for _, c := range unaware() {
		t.Run(c.example, func(t *testing.T) {
			t.Parallel()
			s := c.prepared(t, naives)
			s.drain("5s")
			s.launch()
			l := s.press(append(c.load(s.serves()), c.keeping(s))...)
			s.redeploy()
			l.lossy(map[string]float64{"kept": 12})
		})
	}
}

// blow reloads the site by HUP under a storm.
func blow(s *site, storm lab.Storm) lab.Toll {
	s.T.Helper()
	return storm.Blow(s.T, func() { s.Signal(syscall.SIGHUP) },
		func() int { return s.Count(lab.Says(lab.GenerationServes)) - 1 })
}

func naiveProgram(t testing.TB) string { return lab.Build(t, "examples/measure/naive") }

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

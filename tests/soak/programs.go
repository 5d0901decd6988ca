package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Where the programs listen.
const (
	naiveAddress  = "127.0.0.1:8001"
	politeAddress = "127.0.0.1:8002"
	udpAddress    = "127.0.0.1:8003"
	extraAddress  = "127.0.0.1:8012"
)

// deployed is one of the three programs. One deploy at a time writes its configuration.
type deployed struct {
	name     string
	listener string // name and address as in the configuration
	address  string
	canScale bool // its workers finish what they have when one of several is stopped
	canRoll  bool // a version may replace its workers another way than the one before it

	deploying sync.Mutex
	version   int
	surge     int   // the last version replaces its workers so many at a time; 0: all at once
	extra     bool  // the last version has the extra listener
	touched   spell // soak kills or stops workers of it, aborts or rolls back
}

// newPrograms says what is deployed. naive, whose workers do not finish what they have, replaces them all at once or
// some at a time, by the seed: where this changes, workers that share a socket go alone.
func newPrograms(seed uint64) []*deployed {
	return []*deployed{
		{name: "naive", listener: "http", address: naiveAddress, surge: int(seed % 3)},
		{name: "polite", listener: "http", address: politeAddress, canScale: true, canRoll: true},
		{name: "udp", listener: "dns", address: "udp:" + udpAddress},
	}
}

// version is one release of a program.
type version struct {
	kind  string   // for the report
	ready string   // ready.timeout
	keep  string   // reload.keep
	try   []string // reload.preflight
	run   []string // instead of the worker
	fail  string   // -fail of the worker
	extra bool     // it has one more listener
	junk  bool     // its configuration is broken
}

// good is a version that works.
var good = version{kind: "reload, good version", ready: "60s", keep: "5s"}

// bad are the versions that fail, each at another step.
var bad = []version{
	{kind: "reload, command does not exist", run: []string{"/srv/soak/bin/none"}},
	{kind: "reload, worker exits at once", fail: "exit"},
	{kind: "reload, worker never ready", fail: "mute", ready: "1s"},
	{kind: "reload, worker dies when ready", fail: "die"},
	{kind: "reload, preflight fails", try: []string{"/bin/false"}},
	{kind: "reload, configuration broken", junk: true},
}

// write writes the configuration of the next version of a program.
func (p *deployed) write(v version) error {
	p.version++
	path := filepath.Join(settings, "conf.d", p.name+".toml")
	if err := os.WriteFile(path+".new", []byte(p.configuration(v)), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (p *deployed) configuration(v version) string {
	if v.junk {
		return "[program." + p.name + "]\ncommand = [\n"
	}
	command := v.run
	if command == nil {
		command = []string{worker, "-accounts", accounts}
		if v.fail != "" {
			command = append(command, "-fail", v.fail)
		}
		command = append(command, p.name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[program.%s]\ncommand = %s\nworkers = 2\nenvironment = { SOAK_VERSION = \"%d\" }\n", p.name,
		list(command), p.version)
	fmt.Fprintf(&b, "stdout = \"capture\"\nstderr = \"capture\"\n"+
		"log = { file = \"%s/%s.log\", max_size = \"1MiB\", max_files = 2 }\n", logs, p.name)
	ready := v.ready
	if ready == "" {
		ready = good.ready
	}
	fmt.Fprintf(&b, "ready = { method = \"notify\", timeout = %q, accepts = %t }\nstop = { timeout = \"60s\" }\n"+
		"restart = { backoff = { min = \"100ms\", max = \"1s\" }, stable_after = \"2s\" }\n", ready, !v.extra)
	fmt.Fprintf(&b, "[program.%s.reload]\nsoak = \"500ms\"\n", p.name)
	if p.surge > 0 {
		fmt.Fprintf(&b, "strategy = \"rolling\"\nmax_surge = %d\n", p.surge)
	}
	if len(v.try) > 0 {
		fmt.Fprintf(&b, "preflight = %s\n", list(v.try))
	}
	if v.keep != "" {
		fmt.Fprintf(&b, "keep = %q\n", v.keep)
	}
	fmt.Fprintf(&b, "[program.%s.drain]\ntimeout = \"60s\"\n", p.name)
	fmt.Fprintf(&b, "[[program.%s.listen]]\nname = %q\naddress = %q\n", p.name, p.listener, p.address)
	if v.extra {
		fmt.Fprintf(&b, "[[program.%s.listen]]\nname = \"extra\"\naddress = %q\n", p.name, extraAddress)
	}
	return b.String()
}

// list is a list of strings in TOML.
func list(words []string) string { return `["` + strings.Join(words, `", "`) + `"]` }

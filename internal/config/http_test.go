package config

import (
	"strings"
	"testing"
	"time"
)

const oneProgram = "[program.web]\ncommand = [\"true\"]\n[program.web.ready]\nmethod = \"notify\"\n"

func TestHTTPIsOffByDefault(t *testing.T) {
	if c := load(t, oneProgram); c.Supervisor.HTTP.String() != "" || len(c.Warnings) > 0 {
		t.Errorf("http is %q, warnings %v", c.Supervisor.HTTP.String(), c.Warnings)
	}
}

func TestHTTPAddresses(t *testing.T) {
	for address, warned := range map[string]bool{
		"127.0.0.1:9001": false, "[::1]:0": false, "localhost:9001": false, "unix:/run/x.sock": false, "off": false,
		":9001": true, "0.0.0.0:9001": true, "[::]:9001": true, "192.0.2.1:80": true, "host.example:80": true,
	} {
		c := load(t, "[supervisor]\nhttp = \""+address+"\"\n"+oneProgram)
		if want := strings.TrimPrefix(address, "off"); c.Supervisor.HTTP.String() != want {
			t.Errorf("%s: read as %q", address, c.Supervisor.HTTP.String())
		}
		if got := len(c.Warnings) == 1 && strings.Contains(c.Warnings[0].What, "other machines"); got != warned {
			t.Errorf("%s: warnings %v", address, c.Warnings)
		}
	}
}

func TestHTTPAddressesThatAreNone(t *testing.T) {
	for _, address := range []string{"9001", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", "unix:x.sock", "unix:",
		"http://x:1", "unix:/" + strings.Repeat("x", 107)} {
		said := messages(t, map[string]string{"c.toml": "[supervisor]\nhttp = \"" + address + "\"\n" + oneProgram})
		if !strings.Contains(said, "c.toml:2: supervisor.http: ") {
			t.Errorf("%s: output %q", address, said)
		}
	}
}

func TestTokenWithoutHTTPIsRefused(t *testing.T) {
	said := messages(t, map[string]string{"c.toml": "[supervisor]\nhttp_token_file = \"token\"\n" + oneProgram})
	if !strings.Contains(said, "supervisor.http_token_file: does nothing without http") {
		t.Errorf("output %q", said)
	}
}

func TestHostsOfThePage(t *testing.T) {
	c := load(t, "[supervisor]\nhttp = \"127.0.0.1:9001\"\nhttp_hosts = [\"SV.example.net.\", \"b\"]\n"+oneProgram)
	if got := strings.Join(c.Supervisor.HTTPHosts, " "); got != "sv.example.net b" {
		t.Errorf("read as %q", got)
	}
	for _, name := range []string{"", "sv.example.net:443", "https://sv.example.net", "*.example.net"} {
		said := messages(t, map[string]string{"c.toml": "[supervisor]\nhttp = \"127.0.0.1:9001\"\nhttp_hosts = \"" + name +
			"\"\n" + oneProgram})
		if !strings.Contains(said, "c.toml:3: supervisor.http_hosts: ") {
			t.Errorf("%s: output %q", name, said)
		}
	}
	said := messages(t, map[string]string{"c.toml": "[supervisor]\nhttp_hosts = \"x\"\n" + oneProgram})
	if !strings.Contains(said, "supervisor.http_hosts: does nothing without http") {
		t.Errorf("output %q", said)
	}
}

func TestHooks(t *testing.T) {
	c := load(t, oneProgram+"[program.web.hooks]\nafter_reload = [\"a\", \"b\"]\n")
	if h := c.Programs[0].Hooks; len(h.AfterReload) != 2 || h.ReloadFailed != nil || h.Timeout != 30*time.Second {
		t.Errorf("hooks are %+v", h)
	}
	said := messages(t, map[string]string{"c.toml": oneProgram + "[program.web.hooks]\ntimeout = \"1s\"\n"})
	if !strings.Contains(said, "program.web.hooks.timeout: does nothing without a hook") {
		t.Errorf("output %q", said)
	}
}

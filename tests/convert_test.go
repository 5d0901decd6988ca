package tests

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// convert runs supervisord convert, which must succeed, and writes its output into the configuration of the test.
func convert(m *lab.Supervisord, args ...string) {
	m.T.Helper()
	out, code := m.Run(append([]string{"convert", "-o", m.Path("config.toml"), "--force"}, args...)...)
	if code != 0 {
		m.T.Fatalf("exit code %d: %s", code, out)
	}
	text := m.Read("config.toml")
	own := "[supervisor]\nruntime_dir = \"" + m.Dir + "/run\"\nlog_level = \"debug\"\n"
	if head, rest, ok := strings.Cut(text, "[supervisor]\n"); ok {
		text = head + own + rest
	} else {
		text = own + text
	}
	m.File("config.toml", text)
	if out, code := m.Run("check", "-c", m.Path("config.toml")); code != 0 || !strings.HasSuffix(out, "ok\n") {
		m.T.Fatalf("check exits with %d: %s\n%s", code, out, text)
	}
}

// The server opens port 3000, whatever the source is, and clients come to the port that the source publishes.
func TestConvertedServerThatOpensItsPortLosesNoRequest(t *testing.T) {
	t.Parallel()
	lab.Need(t, "python3")
	for name, file := range map[string]struct{ name, text string }{
		"compose": {"compose.yaml", "services:\n  web:\n    build: .\n    command: python3 server.py\n" +
			"    working_dir: {dir}\n    ports: ['{at}:3000']\n"},
		"systemd": {"web.service", "[Service]\nWorkingDirectory={dir}\nEnvironment=PORT={port} HOST=127.0.0.1\n" +
			"ExecStart=/usr/bin/env python3 server.py\n"},
		"pm2": {"ecosystem.json", `{"apps": [{"name": "web", "cwd": "{dir}", "script": "server.py", "interpreter": ` +
			`"python3", "env": {"PORT": {port}, "HOST": "127.0.0.1"}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, at := lab.Prepare(t), lab.Reserve(t)
			_, port, _ := strings.Cut(at, ":")
			m.File("server.py", strings.ReplaceAll(ownPort["Python's http.server"].script, "3000",
				"int(os.environ.get('PORT', 3000))"))
			m.File(file.name, strings.NewReplacer("{dir}", m.Dir, "{at}", at, "{port}", port).Replace(file.text))
			convert(m, m.Path(file.name))
			if text := m.Read("config.toml"); strings.Contains(text, "stop-first") || !strings.Contains(text, "server.py\"]") {
				t.Errorf("the command is another, or the program stops first:\n%s", text)
			}
			m.Launch("-c", m.Path("config.toml"))
			m.RedeployUnderLoad()
		})
	}
}

package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// checked runs check on a configuration, as text and as JSON, and returns the text and the exit code.
func checked(t *testing.T, m *lab.Supervisord, config string) (text string, code int) {
	t.Helper()
	m.Write(config)
	text, code = m.Run("check", "-c", m.Path("config.toml"))
	out, same := m.Run("check", "--json", "-c", m.Path("config.toml"))
	var answer struct {
		OK       bool
		Findings []struct{ Severity string }
	}
	lab.Must(t, json.Unmarshal([]byte(out), &answer))
	refused := false
	for _, f := range answer.Findings {
		refused = refused || f.Severity == "error"
	}
	if refused == answer.OK || refused != (code != 0) || same != code || refused == strings.HasSuffix(text, "ok\n") {
		t.Errorf("check exits with %d, and with %d and ok = %t as JSON:\n%s%s", code, same, answer.OK, text, out)
	}
	return text, code
}

func TestCheckIsOKExactlyWithoutErrors(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	for _, table := range []string{
		"[program.web.health]\nmethod = \"exec\"\ncommand = [\"curl\", \"-f\", \"http://localhost:8205/healthz\"]\n",
		"[program.web.ready]\nmethod = \"exec\"\ncommand = [\"curl\", \"-f\", \"http://127.0.0.1:8205/healthz\"]\n",
		"[program.web.ready]\nmethod = \"http\"\nurl = \"http://127.0.0.1:9000/\"\n",
	} {
		text, code := checked(t, m, "[program.web]\ncommand = [\"sleep\", \"1\"]\nlisten = [\"127.0.0.1:8205\"]\n"+table)
		if code != 0 || !strings.Contains(text, "warning: program.web.") {
			t.Errorf("check exits with %d: %s", code, text)
		}
	}
	if text, code := checked(t, m, "[program.web]\ncommand = 1\n"); code != 78 {
		t.Errorf("check exits with %d: %s", code, text)
	}
}

func TestCheckReadsEnvironmentFiles(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.File("good.env", "A=1\n# a comment\nexport B='2'\n")
	m.File("space.env", "A=1\nSECRET KEY=foo\n")
	m.File("word.env", "bad line\n")
	for file, want := range map[string]int{"good.env": 0, "space.env": 78, "word.env": 78, "missing.env": 0} {
		text, code := checked(t, m, "[program.web]\ncommand = [\"sleep\", \"1\"]\nenvironment_file = [\"{dir}/"+file+"\"]\n")
		if code != want || want != 0 && !strings.Contains(text, m.Path(file)+":") || strings.Contains(text, "foo") {
			t.Errorf("%s: check exits with %d, want %d: %s", file, code, want, text)
		}
	}
}

func TestPreflightIsNotBlamedForWhatItIsStartedWith(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"directory = \"{dir}/missing\"\n", "limits = { nofile = 999999999999 }\n",
		"environment_file = [\"{dir}/missing\"]\n"} {
		m := lab.Start(t, "[program.web]\ncommand = [{sleep}]\nreload = { preflight = [\"true\"] }\n"+wrong)
		failed := m.Await(lab.Says(lab.TrialFailed))
		if failed.Step != "prepare" {
			t.Errorf("%s the log says %s", wrong, failed.Text)
		}
	}
}

package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"example.org/supervisord/internal/lab"
)

// document is what the tests read of the JSON of a command; docs/openapi.yaml has all of it.
type document struct {
	Command, Host, Outcome, Code, Error string
	Exit                                int
	Tickets                             []struct{ Program string }
	Programs                            []struct {
		Outcome    string
		Generation int
		AskedBy    string   `json:"asked_by"`
		TookMS     *float64 `json:"took_ms"`
		DrainMS    *float64 `json:"drain_ms"`
		Drained    bool
		Reset      *int
		Killed     int
		From       int
		Failure    struct {
			Step string
			Tail []string
		}
		Reload struct {
			Generation, Replaced int
			Outcome, Ended       string
			Took                 int64 `json:"took_ns"`
			Drain                int64 `json:"drain_ns"`
		}
	}
}

// described compiles a schema of docs/openapi.yaml.
func described(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("../docs/openapi.yaml")
	lab.Must(t, err)
	var parsed any
	lab.Must(t, yaml.Unmarshal(text, &parsed))
	text, err = json.Marshal(parsed)
	lab.Must(t, err)
	parsed, err = jsonschema.UnmarshalJSON(bytes.NewReader(text))
	lab.Must(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	lab.Must(t, c.AddResource("openapi.json", parsed))
	s, err := c.Compile("openapi.json#/components/schemas/" + name)
	lab.Must(t, err)
	return s
}

// ask runs a command with --json, which must exit with code, and checks that its stdout is one document that follows
// its schema.
func ask(t *testing.T, m *lab.Supervisord, schema *jsonschema.Schema, code int, args ...string) (d document) {
	t.Helper()
	cmd := exec.Command(lab.Built.Supervisord, append(args, "--json", "-c", m.Path("config.toml"))...)
	cmd.Env, cmd.Dir = m.Environ(), m.Dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output() // the exit status says more
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("%q: exit status %d, want %d: %s%s", args, got, code, out, &stderr)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(out)) // one document, and nothing after it
	if err == nil {
		err = schema.Validate(v)
	}
	if err != nil {
		t.Fatalf("%q: %v:\n%s", args, err, out)
	}
	lab.Must(t, json.Unmarshal(out, &d))
	if d.Exit != code || d.Command != args[0] || d.Host == "" || (code == 0) != (d.Error == "") ||
		!strings.Contains(stderr.String(), d.Error) {
		t.Errorf("%q: exit %d, stderr %q, the document is %s", args, code, &stderr, out)
	}
	return d
}

func TestReloadHasOneDocumentWhateverItsOutcome(t *testing.T) {
	t.Parallel()
	schema := described(t, "Report")
	m := lab.Start(t, lab.Web)
	m.Serves(1)

	d := ask(t, m, schema, 0, "reload", "--drained")
	p := d.Programs[0]
	if d.Outcome != "serves" || !p.Drained || p.Reset == nil || *p.Reset != 0 || p.TookMS == nil || *p.TookMS <= 0 ||
		p.DrainMS == nil ||
		p.AskedBy == "" || p.Reload.Generation != 2 {
		t.Errorf("after a reload: %+v", d)
	}
	if d = ask(t, m, schema, 0, "reload", "--no-wait"); d.Outcome != "accepted" || len(d.Tickets) != 1 ||
		len(d.Programs) != 0 {
		t.Errorf("without waiting: %+v", d)
	}
	m.Serves(3)
	for _, c := range []struct {
		config        string
		code          int
		args          []string
		outcome, word string
	}{
		{lab.Web, 2, []string{"reload", "--canary", "1"}, "error", "bad_request"},
		{lab.Web, 2, []string{"reload", "--cannary", "1"}, "error", "bad_request"},
		{lab.Web, 1, []string{"reload", "wbe"}, "error", "no_program"},
		{lab.Web + "typo = 1\n", 78, []string{"reload"}, "error", "refused"},
		{lab.WebWith("boot=20s"), 14, []string{"reload", "--timeout", "1s"}, "timeout", ""},
		{lab.Web, 0, []string{"stop", "web"}, "down", ""},
		{lab.Web, 0, []string{"start", "web"}, "serves", ""},
		{lab.Web, 0, []string{"start", "web"}, "serves", ""},
	} {
		m.Write(c.config)
		if d := ask(t, m, schema, c.code, c.args...); d.Outcome != c.outcome || d.Code != c.word {
			t.Errorf("%q: %+v", c.args, d)
		}
	}
}

func TestDocumentOfAFailedReloadHasTheLastLinesOfTheWorker(t *testing.T) {
	t.Parallel()
	schema := described(t, "Report")
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	m.Write(strings.Replace(lab.WebWith("say=out of luck", "exit=3"), "[program.web]\n",
		"[program.web]\nstderr = \"capture\"\n", 1))
	d := ask(t, m, schema, 11, "reload")
	p := d.Programs[0]
	if d.Outcome != "worker" || p.Failure.Step != "start" || !slices.Contains(p.Failure.Tail, "out of luck") ||
		!strings.Contains(d.Error, "out of luck") {
		t.Errorf("the document is %+v", d)
	}
}

func TestRollbackHasTheSameDocument(t *testing.T) {
	t.Parallel()
	schema := described(t, "Report")
	m := lab.Start(t, keeps("1h"))
	m.Serves(1)
	m.CtlOK("reload")
	if d := ask(t, m, schema, 0, "rollback"); d.Outcome != "serves" || d.Programs[0].Generation != 1 ||
		d.Programs[0].From != 2 || d.Programs[0].AskedBy == "" {
		t.Errorf("the document is %+v", d)
	}
	if d := ask(t, m, schema, 1, "rollback", "web"); d.Outcome != "error" || d.Code != "not_now" {
		t.Errorf("the second time: %+v", d)
	}
}

func TestCommandsThatNeedNoWaitingHaveADocument(t *testing.T) {
	t.Parallel()
	schema := described(t, "Report")
	m := lab.Start(t, lab.Web)
	m.Serves(1)
	for _, args := range [][]string{{"scale", "web", "2"}, {"signal", "web", "CONT"},
		{"kill", "web", "--generation", "1"}} {
		if d := ask(t, m, schema, 0, args...); d.Outcome != "accepted" {
			t.Errorf("%q: %+v", args, d)
		}
	}
	for code, args := range map[string][]string{"bad_request": {"scale", "web", "many"},
		"no_program": {"signal", "wbe", "CONT"}, "not_now": {"abort", "web"}} {
		if d := ask(t, m, schema, map[bool]int{true: 2, false: 1}[code == "bad_request"], args...); d.Outcome != "error" ||
			d.Code != code {
			t.Errorf("%q: %+v", args, d)
		}
	}
}

func TestCommandsHaveADocumentWithoutSupervisord(t *testing.T) {
	t.Parallel()
	schema := described(t, "Report")
	m := lab.Prepare(t)
	m.Write(lab.Web)
	for _, args := range [][]string{{"reload"}, {"status"}, {"promote", "web"}, {"stop", "web"}, {"resume", "web"}} {
		if d := ask(t, m, schema, 69, args...); d.Outcome != "error" || d.Code != "no_answer" {
			t.Errorf("%q: %+v", args, d)
		}
	}
}

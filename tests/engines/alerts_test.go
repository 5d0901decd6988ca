package engines

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// dashboards are for Grafana.
var dashboards = []string{"docs/grafana-dashboard.json", "examples/fleet/grafana/dashboard.json"}

func TestAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	t.Parallel()
	promtool := lab.Fetched(t, "engines/promtool")
	succeeds(t, promtool, "check", "rules", lab.Root("docs/alerts.yaml"))
	succeeds(t, promtool, "test", "rules", lab.Root("tests/engines/alerts.yaml"))
	tests := text(t, "tests/engines/alerts.yaml")
	for _, m := range regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(text(t, "docs/alerts.yaml"), -1) {
		fires := regexp.MustCompile(`alertname: ` + m[1] + `\n +exp_alerts:`)
		silent := regexp.MustCompile(`alertname: ` + m[1] + `\}`)
		if !fires.MatchString(tests) || !silent.MatchString(tests) {
			t.Errorf("tests/engines/alerts.yaml needs a case in which %s fires, and one in which it does not", m[1])
		}
	}
}

// expressions returns all expressions of a dashboard, those of variables included, in Prometheus's own language.
func expressions(t *testing.T, file string) (found []string) {
	t.Helper()
	var walk func(key string, v any)
	walk = func(key string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, inner := range v {
				walk(k, inner)
			}
		case []any:
			for _, inner := range v {
				walk(key, inner)
			}
		case string:
			if key == "expr" {
				found = append(found, v)
			} else if m := regexp.MustCompile(`^label_values\((.*), \w+\)$`).FindStringSubmatch(v); m != nil {
				found = append(found, m[1])
			}
		}
	}
	var content any
	lab.Must(t, json.Unmarshal([]byte(text(t, file)), &content))
	walk("", content)
	for i, e := range found {
		found[i] = strings.NewReplacer("$__rate_interval", "5m", "$__interval", "1m").Replace(e)
	}
	return found
}

func TestDashboardsHaveValidExpressions(t *testing.T) {
	t.Parallel()
	promtool := lab.Fetched(t, "engines/promtool")
	for _, file := range dashboards {
		rules := "groups:\n- name: " + file + "\n  rules:\n"
		all := expressions(t, file)
		if len(all) < 10 {
			t.Errorf("%s has %d expressions", file, len(all))
		}
		for i, e := range all {
			rules += fmt.Sprintf("  - {record: expression%d, expr: %q}\n", i, e)
		}
		path := filepath.Join(t.TempDir(), "rules.yaml")
		lab.Must(t, os.WriteFile(path, []byte(rules), 0o644))
		succeeds(t, promtool, "check", "rules", path)
	}
}

// Of each metric that a dashboard or an alert names, a real supervisord with a draining generation writes a sample.
func TestDashboardsAndAlertsNameOnlyMetricsThatAreWritten(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	address := "unix:" + m.Path("http.sock")
	m.Start("http = \"unix:{dir}/http.sock\"\n" + lab.WebWith("term=ignore"))
	m.Serves(1)
	m.Write("http = \"unix:{dir}/http.sock\"\n" + lab.Web)
	m.CtlOK("reload")
	page := lab.Ask(t, address, "/metrics")
	m.CtlOK("kill", "web", "--generation", "1")

	written := append(regexp.MustCompile(`(?m)^\w+`).FindAllString(page, -1), "up")
	name := regexp.MustCompile(`\b(?:(?:supervisord|process|go)_\w+|up)\b`)
	for _, file := range append(slices.Clone(dashboards), "docs/alerts.yaml", "tests/engines/alerts.yaml") {
		content := text(t, file)
		if strings.HasSuffix(file, ".json") {
			content = strings.Join(expressions(t, file), "\n")
		} else {
			content = strings.Join(regexp.MustCompile(`(?m)^ *(?:expr:|- \{series:) .*$`).FindAllString(content, -1), "\n")
		}
		named := name.FindAllString(content, -1)
		if len(named) < 10 {
			t.Errorf("%s names only %d metrics", file, len(named))
		}
		for _, n := range named {
			if !slices.Contains(written, n) {
				t.Errorf("%s names %s, of which supervisord writes no sample", file, n)
			}
		}
	}
	if want := `supervisord_generation_info{config="`; !strings.Contains(page, want) ||
		!strings.Contains(page, `directory="`+m.Dir+`"`) {
		t.Errorf("there is no %s with the directory %s in:\n%s", want, m.Dir, page)
	}
}

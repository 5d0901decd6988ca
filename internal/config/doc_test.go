package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/config/document"
)

// setting matches a commented-out key or table of config.toml.example: "#" without a space after it.
var setting = regexp.MustCompile(`(?m)^#([a-z\[{}\]])`)

// uncomment enables every setting.
func uncomment(example string) string { return setting.ReplaceAllString(example, "$1") }

// example returns the text of config.toml.example.
func example(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../config.toml.example")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestExampleIsValid(t *testing.T) {
	c := load(t, example(t))
	if len(c.Programs) != 1 {
		t.Fatalf("%d programs, want hello alone", len(c.Programs))
	}
	p := c.Programs[0]
	if p.Name != "hello" || p.Command[0] != "./bin/hello" || p.Directory != filepath.Dir(c.Files[0]) || p.Listen[0].Name != "http" ||
		p.Listen[0].Address.String() != "127.0.0.1:8080" || p.Ready.Method != "notify" {
		t.Errorf("program is %+v", p)
	}
	for _, w := range c.Warnings {
		if w.Key != "program.hello.command" { // the example worker is not built in this test
			t.Errorf("warning: %s", w)
		}
	}
}

func TestExampleIsValidWithEverySettingOn(t *testing.T) {
	text := uncomment(example(t))
	c := load(t, text)
	if len(c.Programs) < 2 {
		t.Errorf("%d programs: the examples of alternatives are missing", len(c.Programs))
	}
	hello, plain := c.Programs[slices.IndexFunc(c.Programs, func(p Program) bool { return p.Name == "hello" })], load(t, example(t)).Programs[0]
	if hello.Ready.Timeout != plain.Ready.Timeout || hello.Workers != plain.Workers || !slices.Equal(hello.Stop.Steps, plain.Stop.Steps) ||
		hello.Restart != plain.Restart || hello.Stdout != (Output{Kind: plain.Stdout.Kind}) || hello.Stop.MaxDraining != plain.Stop.MaxDraining ||
		hello.Reload.Strategy != plain.Reload.Strategy || hello.Reload.Soak != plain.Reload.Soak || hello.Reload.PreflightTimeout != plain.Reload.PreflightTimeout {
		t.Errorf("a value that the example calls the default is not:\n%+v\n%+v", hello, plain)
	}
}

// knownKeys returns every key of every table, as the documentation names them.
func knownKeys() map[string][]string {
	keys := func(all ...[]string) []string { return slices.Concat(all...) }
	return map[string][]string{
		"[supervisor]":               slices.Sorted(maps.Keys(supervisorFields)),
		"[program.NAME]":             slices.Sorted(maps.Keys(programFields)),
		"[program.NAME.limits]":      slices.Sorted(maps.Keys(limitFields)),
		"[[program.NAME.listen]]":    slices.Sorted(maps.Keys(listenFields)),
		"[program.NAME.ready]":       slices.Sorted(maps.Keys(readyFields)),
		"[program.NAME.reload]":      slices.Sorted(maps.Keys(reloadFields)),
		"[program.NAME.drain]":       slices.Sorted(maps.Keys(drainFields)),
		"[program.NAME.stop]":        slices.Sorted(maps.Keys(stopFields)),
		"[program.NAME.restart]":     keys(slices.Sorted(maps.Keys(restartFields)), slices.Sorted(maps.Keys(backoffFields))),
		"[program.NAME.hooks]":       slices.Sorted(maps.Keys(hookFields)),
		"[program.NAME.health]":      slices.Sorted(maps.Keys(healthFields)),
		"[program.NAME.log]":         slices.Sorted(maps.Keys(logFields)),
		"[program.NAME.stop] steps[": slices.Sorted(maps.Keys(stepFields)),
	}
}

// TestReferenceHasEveryKeyAndNoOther reads the tables of docs/configuration.md: a heading, then rows that start with | `key`.
func TestReferenceHasEveryKeyAndNoOther(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	section := ""
	row := regexp.MustCompile("^\\| `([a-z_0-9.]+)`")
	heading := regexp.MustCompile("^#+ `(.+)`")
	for line := range strings.Lines(string(text)) {
		if m := heading.FindStringSubmatch(line); m != nil {
			section = m[1]
		}
		if m := row.FindStringSubmatch(line); m != nil {
			documented[section] = append(documented[section], strings.TrimPrefix(m[1], "backoff."))
		}
	}
	for table, keys := range knownKeys() {
		if strings.HasSuffix(table, "steps[") {
			continue // the keys of a step are in the row of steps
		}
		got := documented[table]
		slices.Sort(got)
		slices.Sort(keys)
		if !slices.Equal(got, keys) {
			t.Errorf("%s documents\n%q\nthe decoder knows\n%q", table, got, keys)
		}
	}
}

// TestExampleHasEveryKey enables every setting and looks for missing keys.
func TestExampleHasEveryKey(t *testing.T) {
	text := uncomment(example(t))
	d, wrong := document.New("config.toml.example", "/", text)
	if wrong != nil {
		t.Fatal(wrong)
	}
	root, wrong := d.Parse(text)
	if wrong != nil {
		t.Fatal(wrong)
	}
	index := regexp.MustCompile(`\[\d+\]`)
	name := regexp.MustCompile(`^program\.[a-z]+`)
	there := map[string]bool{}
	for _, key := range keysIn(root) {
		there[strings.Replace(name.ReplaceAllString(index.ReplaceAllString(key, ""), "program.NAME"), "backoff.", "", 1)] = true
	}
	for table, keys := range knownKeys() {
		table = strings.ReplaceAll(strings.Trim(table, "[]"), "] ", ".")
		for _, key := range keys {
			if !there[table+"."+key] {
				t.Errorf("%s.%s is not in the example", table, key)
			}
		}
	}
}

func TestErrorsAreDistinguishable(t *testing.T) {
	_, err := Load("/no/such/file")
	var refused *document.Error
	if !errors.As(err, &refused) || refused.Problems[0].File != "/no/such/file" {
		t.Errorf("got %#v", err)
	}
}

// keysIn returns the full names of everything in v.
func keysIn(v document.Value) []string {
	keys := []string{v.Key}
	table, _ := v.Raw.(map[string]any)
	for name := range table {
		keys = append(keys, keysIn(v.Child(name))...)
	}
	items, _ := v.Elements()
	for _, item := range items {
		keys = append(keys, keysIn(item)...)
	}
	return keys
}

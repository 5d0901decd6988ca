package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

// setting matches a commented-out key or table of config.toml.example: "#" without a space after it.
var setting = regexp.MustCompile(`(?m)^#([a-z\[{}\]])`)

// uncomment enables every setting.
func uncomment(example string) string { return setting.ReplaceAllString(example, "$1") }

// example returns the text of config.toml.example.
func example(t *testing.T) string { return text(t, "config.toml.example") }

// text returns the text of a file of the repository.
func text(t *testing.T, path string) string {
	t.Helper()
	text := must.Get(os.ReadFile("../../" + path))(t)
	return string(text)
}

func TestExampleIsValid(t *testing.T) {
	c := load(t, example(t))
	if len(c.Programs) != 1 {
		t.Fatalf("%d programs, want hello alone", len(c.Programs))
	}
	p := c.Programs[0]
	if p.Name != "hello" || p.Command[0] != "./bin/hello" || p.Directory != filepath.Dir(c.Files[0]) ||
		p.Listen[0].Name != "http" ||
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
	hello, plain := c.Programs[slices.IndexFunc(c.Programs, func(p Program) bool { return p.Name == "hello" })], load(t,
		example(t)).Programs[0]
	if hello.Ready.Timeout != plain.Ready.Timeout || hello.Workers != plain.Workers ||
		!slices.Equal(hello.Stop.Steps, plain.Stop.Steps) ||
		hello.Reload.Soak != plain.Reload.Soak {
		t.Errorf("a value that the example calls the default is not:\n%+v\n%+v", hello, plain)
	}
}

// TestExampleIsAPage: who opens it reads it.
func TestExampleIsAPage(t *testing.T) {
	if n := strings.Count(example(t), "\n"); n > 66 {
		t.Errorf("config.toml.example has %d lines", n)
	}
}

// knownKeys returns every key of every table, as the documentation names them.
func knownKeys() map[string][]string {
	tables := map[string][]string{"[supervisor]": keysOf(supervisorFields)}
	for _, t := range programTables() {
		if t.Path == "limits.rlimits" { // its keys are in one entry: see TestReferenceNamesEveryLimit
			continue
		}
		outer, inner, _ := strings.Cut(t.Path, ".")
		name := strings.TrimSuffix("program.NAME."+outer, ".")
		if name = "[" + name + "]"; outer == "listen" {
			name = "[" + name + "]"
		}
		for _, key := range t.Keys {
			tables[name] = append(tables[name], strings.TrimPrefix(inner+"."+key, "."))
		}
	}
	return tables
}

// entry is a key in docs/configuration.md: its table, its name, an example in TOML, and the default if that is a value
// in TOML.
type entry struct{ table, key, example, fallback string }

// reference reads the keys of docs/configuration.md:
//
//   - <a id="stop.timeout"></a>**`timeout = "2m"`** · duration · default `"30s"` · *new generation*\
func reference(t *testing.T) []entry {
	t.Helper()
	text := text(t, "docs/configuration.md")
	heading := regexp.MustCompile("^## `(.+)`")
	head := regexp.MustCompile("^- <a id=\"([a-z_0-9.]+)\"></a>\\*\\*`([a-z_0-9.]+) = (.+?)`\\*\\* · (?:.+ · " +
		")?\\*(now|restart|new generation|in place|new socket)\\*\\\\\n$")
	fallback := regexp.MustCompile("· default `([^`]+)` ·")
	var entries []entry
	table := ""
	for line := range strings.Lines(text) {
		if m := heading.FindStringSubmatch(line); m != nil {
			table = m[1]
		}
		if !strings.Contains(line, "<a id=") {
			continue
		}
		m := head.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not the form of a key: %s", line)
			continue
		}
		anchor := strings.TrimPrefix(strings.Replace(strings.Trim(table, "[]"), "program.NAME.", "", 1)+"."+m[2],
			"program.NAME.")
		if table == "[program.NAME]" {
			anchor = "program." + m[2]
		}
		if m[1] != anchor {
			t.Errorf("the anchor of %s in %s is %q, want %q", m[2], table, m[1], anchor)
		}
		e := entry{table: table, key: m[2], example: m[2] + " = " + m[3]}
		if m := fallback.FindStringSubmatch(line); m != nil && !strings.Contains(m[1], ".") {
			e.fallback = e.key + " = " + m[1]
		}
		entries = append(entries, e)
	}
	return entries
}

// TestReferenceBeginsWithTenKeysThatWork: on one screen, and valid.
func TestReferenceBeginsWithTenKeysThatWork(t *testing.T) {
	text := text(t, "docs/configuration.md")
	_, after, _ := strings.Cut(text, "```toml\n")
	block, _, _ := strings.Cut(after, "```")
	if at := strings.Index(text, block); strings.Count(text[:at], "\n") > 10 ||
		strings.Count(block, "\n") != 11 {
		t.Errorf("the ten keys are not at the beginning:\n%s", block)
	}
	if wrong := messages(t, map[string]string{"c.toml": strings.Replace(block, "www-data", "root", 1)}); wrong != "" {
		t.Error(wrong)
	}
}

func TestReferenceHasEveryKeyAndNoOther(t *testing.T) {
	documented := map[string][]string{}
	for _, e := range reference(t) {
		documented[e.table] = append(documented[e.table], e.key)
	}
	for table, keys := range knownKeys() {
		got := documented[table]
		slices.Sort(got)
		slices.Sort(keys)
		if !slices.Equal(got, keys) {
			t.Errorf("%s documents\n%q\nthe decoder knows\n%q", table, got, keys)
		}
	}
}

// TestReferenceNamesEveryLimit: those of rlimits are in one entry.
func TestReferenceNamesEveryLimit(t *testing.T) {
	text := text(t, "docs/configuration.md")
	_, after, _ := strings.Cut(text, "<a id=\"limits.rlimits\">")
	entry, _, _ := strings.Cut(after, "- <a id=")
	for _, name := range keysOf(rlimitFields) {
		if !strings.Contains(entry, "`"+name+"`") {
			t.Errorf("the entry of rlimits does not name %s:\n%s", name, entry)
		}
	}
}

// needs lists what examples need beside them: in their own table, or a whole table.
var needs = []struct{ table, keys, need string }{
	{"[supervisor]", "http_hosts http_token_file", `http = "127.0.0.1:9001"`},
	{"[program.NAME]", "drain", `listen = ["127.0.0.1:8080"]`},
	{"[program.NAME]", "log", `stdout = "capture"`},
	{"[program.NAME.hooks]", "timeout", `after_reload = ["true"]`},
	{"[program.NAME.reload]", "max_surge", `strategy = "rolling"`},
	{"[[program.NAME.listen]]", "mode user group", `address = "unix:/run/web.sock"`},
	{"[[program.NAME.listen]]", "flows", "address = \"udp::8080\"\nhandover = \"flow\""},
	{"[[program.NAME.listen]]", "address", `name = "http"`},
	{"[[program.NAME.listen]]", "socket.ipv6_only", `address = "[::]:8080"`},
	{"[program.NAME.ready]", "fd", `method = "notify"`},
	{"[program.NAME.ready]", "delay", `method = "delay"`},
	{"[program.NAME.ready] [program.NAME.health]", "url", `method = "http"`},
	{"[program.NAME.ready] [program.NAME.health]", "address", `method = "tcp"`},
	{"[program.NAME.ready] [program.NAME.health]", "command", `method = "exec"`},
	{"[program.NAME.ready] [program.NAME.health]", "headers status interval",
		"method = \"http\"\nurl = \"http://{listener:http}/\""},
	{"[program.NAME.health]", "method", `url = "http://{listener:http}/"`},
	{"[program.NAME.health]", "timeout failures", "method = \"http\"\nurl = \"http://{listener:http}/\""},
}

// need is what an example needs beside it.
func (e entry) need() string {
	for _, n := range needs {
		if slices.Contains(strings.Fields(n.table), e.table) && slices.Contains(strings.Fields(n.keys), e.key) {
			return n.need
		}
	}
	return ""
}

// configuration returns one with this line in this table.
func configuration(e entry, line string) string {
	const web, http = "[program.NAME]\ncommand = [\"sleep\", \"1\"]\n",
		"[[program.NAME.listen]]\nname = \"http\"\naddress = \"127.0.0.1:8080\"\n"
	own := e.need() + "\n" + line + "\n"
	switch e.table {
	case "[supervisor]":
		return e.table + "\n" + own + web
	case "[program.NAME]":
		if e.key == "command" {
			return e.table + "\n" + own
		}
		if e.key == "after" {
			own += "[program.db]\ncommand = [\"sleep\", \"1\"]\n"
		}
		return web + own
	case "[[program.NAME.listen]]":
		if !strings.Contains(own, "address = ") {
			own += "address = \"127.0.0.1:8080\"\n"
		}
		return web + e.table + "\n" + own
	case "[program.NAME.log]":
		if e.key != "file" {
			own += "file = \"web.log\"\n"
		}
		return web + "stdout = \"capture\"\n" + e.table + "\n" + own
	}
	return web + http + e.table + "\n" + own
}

func TestExamplesInTheReferenceAreValid(t *testing.T) {
	entries := reference(t)
	for _, e := range entries {
		if wrong := messages(t, map[string]string{"c.toml": configuration(e, e.example),
			"conf.d/empty.toml": ""}); wrong != "" {
			t.Errorf("%s %s: %s\n%s", e.table, e.example, wrong, configuration(e, e.example))
		}
	}
}

// TestDefaultsInTheReferenceAreTheDefaults compares a configuration that sets a key to its default with one that does
// not.
func TestDefaultsInTheReferenceAreTheDefaults(t *testing.T) {
	tried := 0
	for _, e := range reference(t) {
		if e.fallback == "" {
			continue
		}
		tried++
		dir := must.Files(t, map[string]string{"with.toml": configuration(e, e.fallback),
			"without.toml": configuration(e, "")})
		with, err := Load(filepath.Join(dir, "with.toml"))
		without, other := Load(filepath.Join(dir, "without.toml"))
		if err != nil || other != nil {
			t.Errorf("%s %s: %v, %v", e.table, e.fallback, err, other)
		} else if !with.Programs[0].Equal(without.Programs[0]) || !reflect.DeepEqual(with.Supervisor, without.Supervisor) {
			t.Errorf("%s %s is not the default", e.table, e.fallback)
		}
	}
	if tried < 25 {
		t.Errorf("only %d defaults were found: is the pattern wrong?", tried)
	}
}

var (
	tomlBlock   = regexp.MustCompile("(?ms)^[ \t]*```toml\n(.*?)^[ \t]*```")
	somebody    = regexp.MustCompile(`\b(user|group)(\s*)= "[^"]*"`)
	topLevelKey = regexp.MustCompile(`(?m)^\s*(\[|[a-z_]+\s*=)`)
	ownCommand  = regexp.MustCompile(`(?m)^\s*command\s*=`)
)

// TestEveryConfigurationInTheDocsIsValid: those of README and docs, whole or in parts, by the parser that users have.
func TestEveryConfigurationInTheDocsIsValid(t *testing.T) {
	files := must.Get(filepath.Glob("../../docs/*.md"))(t)
	blocks := 0
	for _, file := range append(files, "../../README.md") {
		text := must.Get(os.ReadFile(file))(t)
		for _, m := range tomlBlock.FindAllSubmatchIndex(text, -1) {
			blocks++
			line := 1 + strings.Count(string(text[:m[2]]), "\n")
			whole := completed(string(text[m[2]:m[3]]))
			if wrong := messages(t, map[string]string{"c.toml": whole}); wrong != "" {
				t.Errorf("%s:%d: %s\n%s", filepath.Base(file), line, wrong, whole)
			}
		}
	}
	if blocks < 20 {
		t.Errorf("only %d blocks were found: is the pattern wrong?", blocks)
	}
}

// completed is a part of a configuration with what a whole one must have.
func completed(block string) string {
	block = somebody.ReplaceAllString(block, `$1$2= "root"`)
	if first := topLevelKey.FindStringSubmatch(block); first != nil && first[1] != "[" {
		block = "[program.web]\n" + block
	}
	if !ownCommand.MatchString(block) {
		block += "\n[program.web]\ncommand = [\"true\"]\nlisten = [\"127.0.0.1:8080\"]\n"
	}
	return block
}

package config

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/document"
)

// Wrapped returns a note for each program whose command starts the server as a child, or starts something else before
// the server. Such programs work; the note says what the wrapper costs.
func (c *Config) Wrapped() (notes []document.Problem) {
	for i := range c.Programs {
		p := &c.Programs[i]
		if what, remedy := p.wrapper(); what != "" {
			notes = append(notes, document.Problem{File: p.File, Position: p.commandPosition, Severity: document.Note,
				Key: document.Key("program", p.Name) + ".command", What: what, Remedy: remedy})
		}
	}
	return notes
}

// wrapping is a program that starts another one.
type wrapping struct {
	names    []string
	word     string // starts it: "run"; "": each does
	becomes  bool   // it ends as the other program (exec), and is not its parent
	instead  string // what to write
	packages string // where its project has the programs; "": nowhere
}

// wrappings are the wrappers that are known. A shell is known better: see shell.
var wrappings = []wrapping{
	{names: []string{"npm", "npx", "pnpx", "yarn", "pnpm", "bunx"}, instead: nodeInstead, packages: "node_modules/.bin"},
	{names: []string{"bun"}, word: "run", instead: nodeInstead, packages: "node_modules/.bin"},
	{names: []string{"deno"}, word: "task",
		instead: `write the command of the task itself, such as command = ["deno", "run", "main.ts"]`},
	{names: []string{"uv", "pdm"}, word: "run", instead: pythonInstead, packages: ".venv/bin"},
	{names: []string{"hatch", "conda", "mamba", "micromamba", "pixi"}, word: "run",
		instead: "write the program in the environment itself, whose path `%s run which PROGRAM` prints"},
	{names: []string{"poetry", "pipenv", "rye"}, word: "run", becomes: true, instead: pythonInstead,
		packages: ".venv/bin"},
	{names: []string{"uvx"}, instead: "install the program, and write its path"},
	{names: []string{"dotenv", "dotenvx", "doppler", "infisical"}, word: "run",
		instead: "write the variables into a file, environment_file = [\"web.env\"], and the server's own command"},
	{names: []string{"go"}, word: "run",
		instead: "build it in a deploy, with `go build`, and write the path of the program"},
	{names: []string{"cargo"}, word: "run", becomes: true,
		instead: "build it in a deploy, with `cargo build --release`, and write command = [\"target/release/NAME\"]"},
	{names: []string{"make"}, instead: "write the command of the rule itself"},
	{names: []string{"mvn", "mvnw", "gradle", "gradlew"},
		instead: `build it in a deploy, and write such as command = ["java", "-jar", "target/web.jar"]`},
	{names: []string{"sudo", "su", "runuser", "doas"}, instead: `write user = "NAME", and the server's own command`},
}

const (
	nodeInstead   = `write the server's own command, such as command = ["node", "server.js"]`
	pythonInstead = "write the program in the virtual environment, whose path `%s run which PROGRAM` prints"
)

// wrapper says what the wrapper in the command of p costs, and what to write; "": there is none.
func (p *Program) wrapper() (what, remedy string) {
	name := filepath.Base(p.Command[0])
	if slices.Contains([]string{"sh", "dash", "ash"}, name) {
		return p.shell()
	}
	at := slices.IndexFunc(wrappings, func(w wrapping) bool {
		return slices.Contains(w.names, name) && (w.word == "" || slices.Contains(p.Command, w.word))
	})
	if at < 0 {
		return "", ""
	}
	w := &wrappings[at]
	what = name + " starts first at each start of a worker, which takes longer, and then becomes the server"
	if !w.becomes {
		what = name + " stays as the worker, and the server is its child: the exit status and `supervisord signal` are " +
			"those of " + name + ", and each worker has its memory, too"
		if len(p.Listen) > 0 {
			what += "; no inherited socket reaches the server (LISTEN_FDS), only one that it opens itself"
		}
	}
	if line := cmp.Or(p.script(name), p.installed(w)); line != "" {
		return what, "write command = " + line
	}
	return what, strings.ReplaceAll(w.instead, "%s", name)
}

// installed returns the command below the wrapper as an array in TOML, if its program is where a project has them; "":
// it is not.
func (p *Program) installed(w *wrapping) string {
	at := slices.Index(p.Command, w.word) + 1 // 0 without a word, after which comes an option or a name
	if w.packages == "" || w.word == "" || at >= len(p.Command) {
		return ""
	}
	words := slices.Clone(p.Command[at:])
	if words[0] == "--" && len(words) > 1 {
		words = words[1:]
	}
	program := filepath.Join(p.Directory, w.packages, words[0])
	if info, err := os.Stat(program); strings.Contains(words[0], "/") || err != nil || !info.Mode().IsRegular() {
		return ""
	}
	words[0] = w.packages + "/" + words[0]
	return inTOML(words)
}

func inTOML(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = document.Quote(word)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// script returns the command of a script in package.json as an array in TOML; "": it is not known, or needs npm or a
// shell.
func (p *Program) script(name string) string {
	if !slices.Contains([]string{"npm", "yarn", "pnpm", "bun"}, name) {
		return ""
	}
	words := slices.DeleteFunc(slices.Clone(p.Command[1:]),
		func(word string) bool { return word == "run" || word == "run-script" })
	if len(words) != 1 {
		return ""
	}
	text, err := document.ReadFile(filepath.Join(p.Directory, "package.json"))
	var parsed struct{ Scripts map[string]string }
	if err != nil || json.Unmarshal(text, &parsed) != nil {
		return ""
	}
	fields := strings.Fields(parsed.Scripts[words[0]])
	if len(fields) == 0 || strings.ContainsAny(parsed.Scripts[words[0]], "|&;<>()$`\\\"'*?[]#~%=") {
		return ""
	}
	if fields[0] != "node" {
		fields[0] = "./node_modules/.bin/" + fields[0]
	}
	return document.Command(strings.Join(fields, " "))
}

// shell is wrapper for a shell that does not replace itself by its last command, as bash does.
func (p *Program) shell() (what, remedy string) {
	if len(p.Command) < 3 || !strings.HasPrefix(p.Command[1], "-") || !strings.HasSuffix(p.Command[1], "c") {
		return "", ""
	}
	better := document.ExecLast(p.Command[2])
	is, _ := filepath.EvalSymlinks(p.executable(p.Command[0]))
	if better == p.Command[2] || filepath.Base(is) == "bash" {
		return "", ""
	}
	return "the shell stays as the worker, and the server is its child: the exit status and `supervisord signal` are " +
			"those of the shell, " +
			"and LISTEN_PID is not the server's",
		"write command = " + inTOML(slices.Concat(p.Command[:2], []string{better}, p.Command[3:]))
}

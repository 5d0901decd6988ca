package config

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/document"
)

// Wrapped returns a note for each program whose command starts the server as a child, or starts something else before
// it. Such programs work; the note says what they cost.
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

// wrapper says what the wrapper in the command of p costs, and what to write; "": there is none.
func (p *Program) wrapper() (what, remedy string) {
	name := filepath.Base(p.Command[0])
	switch {
	case slices.Contains([]string{"npm", "npx", "yarn", "pnpm"}, name):
		what = name + " stays as the worker, and the server is its child: the exit status and `supervisord signal` are " +
			"those of " + name +
			", and each worker has its memory, too"
		if len(p.Listen) > 0 {
			what += "; no inherited socket reaches the server (LISTEN_FDS), only one that it opens itself"
		}
		return what, ownCommand(p.script(name))
	case slices.Contains([]string{"poetry", "pipenv"}, name) && slices.Contains(p.Command, "run"):
		return name + " starts first at each start of a worker, which takes longer, and then becomes the server",
			"write the program in the virtual environment, whose path `" + name + " run which PROGRAM` prints"
	case slices.Contains([]string{"sh", "dash", "ash"}, name):
		return p.shell()
	}
	return "", ""
}

// ownCommand is the remedy for a wrapper of npm's kind; line is the server's own command if package.json shows it.
func ownCommand(line string) string {
	if line == "" {
		return `write the server's own command, such as command = ["node", "server.js"]`
	}
	return "write command = " + line
}

// script returns the command of a script in package.json as an array in TOML; "": it is not known, or needs npm or a
// shell.
func (p *Program) script(name string) string {
	words := slices.DeleteFunc(slices.Clone(p.Command[1:]),
		func(word string) bool { return word == "run" || word == "run-script" })
	if len(words) != 1 || name == "npx" {
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
	words := slices.Concat(p.Command[:2], []string{better}, p.Command[3:])
	for i, word := range words {
		words[i] = document.Quote(word)
	}
	return "the shell stays as the worker, and the server is its child: the exit status and `supervisord signal` are " +
			"those of the shell, " +
			"and LISTEN_PID is not the server's",
		fmt.Sprintf("write command = [%s]", strings.Join(words, ", "))
}

package convert

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/pattern"
)

// procfileLine is a process of a Procfile. foreman allows letters, digits and _ in a name, its successors - too.
var procfileLine = pattern.Lazy(`(?m)^([A-Za-z0-9_-]+):[ \t]*(\S.*)$`)

// formation is how foreman runs a Procfile.
type formation struct {
	*draft
	root      string
	env       []string // files
	counts    map[string]int
	otherwise int
	port      int
	portFile  bool // a file of env sets PORT
	timeout   float64
}

// procfile converts a Procfile, or a command line of foreman or honcho and the Procfile that it names.
func (d *draft) procfile() {
	f := &formation{draft: d, root: d.Dir, counts: map[string]int{}, otherwise: 1, port: 5000, timeout: 5}
	if d.Args != nil && !f.commandLine() {
		return
	}
	f.environmentFiles()
	d.say("Under foreman all processes exit when one does; here each is restarted by itself. A Procfile's server opens $PORT itself, so the old worker\n" +
		"must exit first (strategy = \"stop-first\"). With a listener, which the server takes from LISTEN_FDS, a reload loses no request.")
	f.processes()
}

// commandLine reads the options of foreman, and the Procfile.
func (f *formation) commandLine() bool {
	c, _ := f.draft.commandLine()
	syntax, known := byOption(f.foremanOptions())
	syntax.Anywhere = true
	options, rest, ok := f.options(c, syntax)
	if !ok {
		return false
	}
	if len(rest) == 0 || c.words[rest[0]] != "start" {
		f.wrong(setting{at: c.at[0]}, "starts nothing", "write foreman start …")
		return false
	}
	for _, o := range options {
		f.head.apply(known[o.key], o)
	}
	if len(rest) > 1 {
		f.otherwise, f.counts = 0, map[string]int{}
		for _, i := range rest[1:] {
			f.counts[c.words[i]] = 1
		}
	}
	return f.find() && len(f.problems) == 0
}

// foremanOptions are the options of foreman start and honcho start.
func (f *formation) foremanOptions() []optionRule {
	const text, flag = getopt.Text, getopt.Switch
	output := none("each program has its own output: `supervisord logs NAME`")
	return []optionRule{
		{"procfile", "f", text, kept},
		{"root", "d", text, kept},
		{"app-root", "", text, kept},
		{"env", "e", text, kept},
		{"formation", "m", text, f.readCounts},
		{"concurrency", "c", text, f.readCounts},
		{"port", "p", text, func(_ *program, s setting) { f.port, _ = f.integer(s) }},
		{"timeout", "t", text, func(_ *program, s setting) { f.timeout, _ = f.number(s) }},
		{"color", "", flag, output},
		{"no-color", "", flag, output},
		{"no-colour", "", flag, output},
		{"timestamp", "", flag, output},
		{"no-timestamp", "", flag, output},
		{"no-prefix", "", flag, output},
		{"quiet", "q", text, output},
	}
}

// find reads the Procfile that the options name.
func (f *formation) find() bool {
	given := f.head.given
	root := cmp.Or(given["root"].value, given["app-root"].value)
	f.Name = f.path(cmp.Or(given["procfile"].value, filepath.Join(root, "Procfile")))
	f.root = f.path(cmp.Or(root, filepath.Dir(f.Name)))
	f.env = strings.FieldsFunc(given["env"].value, func(r rune) bool { return r == ',' })
	text, ok := f.read(setting{at: location{file: f.Name}}, f.Name)
	f.Text = text
	return ok
}

// readCounts reads the number of each process: web=2,worker=3, or all=1.
func (f *formation) readCounts(_ *program, s setting) {
	for pair := range strings.SplitSeq(strings.ReplaceAll(s.value, " ", ""), ",") {
		name, count, ok := strings.Cut(pair, "=")
		n, err := strconv.Atoi(count)
		switch {
		case !ok || err != nil || n < 0:
			f.wrong(s, fmt.Sprintf("%q is not a number of processes", pair), "write for example web=2,worker=1")
			return
		case name == "all":
			f.otherwise = n
		default:
			f.counts[name] = n
		}
	}
}

// environmentPort is the variable PORT in an environment file.
var environmentPort = pattern.Lazy(`(?m)^\s*(?:export\s+)?PORT\s*=\s*['"]?([0-9]+)['"]?\s*$`)

// environmentFiles finds the environment files. A PORT in them is the first port.
func (f *formation) environmentFiles() {
	files := f.env
	if len(files) == 0 {
		files = []string{".env"}
	}
	f.env = nil
	for _, file := range files {
		path := joinPath(f.root, file)
		text, err := f.Read(path)
		if err != nil && file == ".env" {
			continue
		}
		f.env = append(f.env, path)
		s := setting{at: location{file: path}, text: "the file"}
		if err := environment.CheckFile(path, text); err != nil {
			f.head.lacks(s, "supervisord cannot read it: "+err.Error())
		}
		if strings.Contains(text, "$") {
			f.head.lacks(s, "supervisord does not expand $VARIABLE in environment files: write the value")
		}
		if m := environmentPort().FindStringSubmatch(text); m != nil {
			f.port, _ = strconv.Atoi(m[1])
			f.portFile = true
			f.say(fmt.Sprintf("%s sets PORT, which would be the port of every program: each command sets its own, from %d.", path, f.port))
		}
	}
}

// processes converts the lines of a Procfile.
func (f *formation) processes() {
	var comments []string
	index := 0
	for i, line := range strings.Split(normal(f.Text), "\n") {
		at := location{f.Name, i + 1}
		trimmed := strings.TrimSpace(line)
		m := procfileLine().FindStringSubmatch(line)
		switch {
		case trimmed == "":
			comments = nil
		case strings.HasPrefix(trimmed, "#"):
			comments = append(comments, strings.TrimSpace(strings.TrimLeft(trimmed, "# ")))
		case m == nil:
			f.head.lacks(setting{at: at, text: trimmed}, "it is not NAME: COMMAND, and foreman ignores it")
		default:
			f.process(setting{at: at, key: m[1], value: strings.TrimSpace(m[2]), text: line, comments: comments}, f.port+100*index)
			index, comments = index+1, nil
		}
	}
}

// process converts one process.
func (f *formation) process(s setting, port int) {
	n, given := f.counts[s.key]
	if !given {
		n = f.otherwise
	}
	p := f.newProgram(s, s.key)
	if p.off = n < 1; p.off {
		p.lacks(s, "the formation has none of it; remove the # of these lines to run one")
	}
	if s.key == "release" {
		p.off = true
		p.lacks(s, "use reload.preflight of the program that is released for a command before each release")
	}
	stays, ok := p.procfileCommand(s)
	if !ok {
		return
	}
	if n > 1 {
		p.run.export("PORT", part(shellPart, fmt.Sprintf("$((%d + SUPERVISORD_SLOT))", port)))
	} else if f.portFile { // which would win over the program's own
		p.run.export("PORT", strconv.Itoa(port))
	}
	p.argv()
	p.set("directory", f.root)
	if n > 1 {
		s.value = strconv.Itoa(n)
		p.apply(to("workers", asWorkers), s)
	}
	if len(f.env) > 0 {
		p.set("environment_file", f.env)
	}
	p.set("environment.PORT", strconv.Itoa(port))
	p.readyAfter(s, 1)
	p.set("reload.strategy", "stop-first")
	if timeout, ok := p.duration("stop.timeout", s, f.timeout, 0.001); ok {
		p.set("stop.timeout", timeout)
	}
	if stays {
		p.note("stop", s, "a shell stays in front of the program: the signal goes to both")
		p.set("stop.group", true)
	}
}

// shellCommands are commands that only a shell can run.
var shellCommands = []string{"cd", ".", "source", "eval", "exec", "export", "set", "umask", "ulimit", "trap", "test", "[", ":"}

// procfileCommand reads the command of a process: words if no shell is needed, otherwise a script. It reports whether the shell
// stays in front of the program.
func (p *program) procfileCommand(s setting) (stays, ok bool) {
	if strings.Contains(s.value, placeholder) {
		p.wrong(s, "contains "+placeholder+", which refers to a listener in supervisord", "write it differently, for example {''fd:")
		return false, false
	}
	file, ok := p.parseShell(s, s.value, "fix the command")
	if !ok {
		return false, false
	}
	p.run.script = s.value
	if len(file.Stmts) != 1 {
		return true, true
	}
	call, simple := simpleCommand(file.Stmts[0])
	if !simple || len(call.Args) == 0 {
		return true, true
	}
	var words []string
	literal := true
	for _, w := range call.Args {
		word, ok := literalWord(w)
		words, literal = append(words, word), literal && ok
	}
	name := words[0]
	switch {
	case name == "exec":
		return false, true
	case slices.Contains(shellCommands, name):
		return true, true
	case len(call.Assigns) > 0:
		p.run.script = "exec env " + s.value
	case !literal || len(file.Stmts[0].Redirs) > 0:
		p.run.script = "exec " + s.value
	default:
		p.run.script, p.run.words = "", words
	}
	return false, true
}

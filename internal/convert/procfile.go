package convert

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/internal/servers"
)

// procfileLine is a process of a Procfile. foreman allows letters, digits and _ in a name, its successors - too.
var procfileLine = pattern.Lazy(`(?m)^([A-Za-z0-9_-]+):[ \t]*(\S.*)$`)

// isProcfile reports whether a file without the name of a Procfile is one: every line is a process, with a space before
// its command. One line of YAML, or of /etc/passwd, looks the same.
func isProcfile(text string) bool {
	processes := 0
	for line := range strings.SplitSeq(text, "\n") {
		switch m := procfileLine().FindStringSubmatch(line); {
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, "#"):
		case m == nil, !strings.ContainsAny(line[len(m[1])+1:len(m[1])+2], " \t"), strings.ContainsAny(m[2][:1], `"'[{|>&*!`):
			return false
		default:
			processes++
		}
	}
	return processes > 0
}

// formation is how foreman runs a Procfile.
type formation struct {
	*conversion
	root      string
	env       []string // files
	counts    map[string]int
	otherwise int
	port      int
	portFile  bool // a file of env sets PORT
	timeout   float64
	sockets   map[string][]source.Setting // of each process, by the Socketfile
}

// procfile converts a Procfile, or a command line of foreman or honcho and the Procfile that it names.
func (d *conversion) procfile() {
	f := &formation{conversion: d, root: d.Dir, counts: map[string]int{}, otherwise: 1, port: 5000, timeout: 5}
	if d.Args != nil && !f.commandLine() {
		return
	}
	f.environmentFiles()
	f.socketfile()
	d.Say("Under foreman all processes exit when one does; here each is restarted by itself.")
	f.processes()
	for _, name := range slices.Sorted(maps.Keys(f.sockets)) { // of those that are there, none is left
		f.Head.Lacks(f.sockets[name][0], "the Procfile has no process "+name)
	}
}

// socketfile reads the Socketfile beside the Procfile, by which foreman opens sockets for its processes:
//
//	web: http=:3000 admin=127.0.0.1:3001
func (f *formation) socketfile() {
	path := draft.JoinPath(f.root, "Socketfile")
	text, err := f.Read(path)
	if err != nil {
		return
	}
	f.sockets = map[string][]source.Setting{}
	for i, line := range strings.Split(source.Normalize(text), "\n") {
		s := source.Setting{At: source.Location{File: path, Line: i + 1}, Text: strings.TrimSpace(line)}
		process, list, ok := strings.Cut(s.Text, ":")
		if s.Text == "" || strings.HasPrefix(s.Text, "#") {
			continue
		}
		for word := range strings.FieldsSeq(list) {
			if s.Key, s.Value, ok = strings.Cut(word, "="); !ok {
				break
			}
			f.sockets[process] = append(f.sockets[process], s)
		}
		if !ok {
			f.Wrong(s, "is not NAME: SOCKET=ADDRESS", "write for example web: http=:3000")
		}
	}
}

// commandLine reads the options of foreman, and the Procfile.
func (f *formation) commandLine() bool {
	c, _ := f.conversion.commandLine()
	syntax, known := byOption(f.foremanOptions())
	syntax.Anywhere = true
	options, rest, ok := f.options(c, syntax)
	if !ok {
		return false
	}
	if len(rest) == 0 || c.words[rest[0]] != "start" {
		f.Wrong(source.Setting{At: c.at[0]}, "starts nothing", "write foreman start …")
		return false
	}
	for _, o := range options {
		f.Head.Apply(known[o.Key], o)
	}
	if len(rest) > 1 {
		f.otherwise, f.counts = 0, map[string]int{}
		for _, i := range rest[1:] {
			f.counts[c.words[i]] = 1
		}
	}
	return f.find() && len(f.Problems) == 0
}

// foremanOptions are the options of foreman start and honcho start.
func (f *formation) foremanOptions() []optionRule {
	const text, flag = getopt.Text, getopt.Switch
	output := draft.None("each program has its own output: `supervisord logs NAME`")
	return []optionRule{
		{"procfile", "f", text, draft.Kept},
		{"root", "d", text, draft.Kept},
		{"app-root", "", text, draft.Kept},
		{"env", "e", text, draft.Kept},
		{"formation", "m", text, f.readCounts},
		{"concurrency", "c", text, f.readCounts},
		{"port", "p", text, func(_ *draft.Block, s source.Setting) { f.port, _ = f.Integer(s) }},
		{"timeout", "t", text, func(_ *draft.Block, s source.Setting) { f.timeout, _ = f.Number(s) }},
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
	given := f.Head.Given
	root := cmp.Or(given["root"].Value, given["app-root"].Value)
	f.Name = f.Path(cmp.Or(given["procfile"].Value, filepath.Join(root, "Procfile")))
	f.root = f.Path(cmp.Or(root, filepath.Dir(f.Name)))
	f.env = strings.FieldsFunc(given["env"].Value, func(r rune) bool { return r == ',' })
	text, ok := f.ReadText(source.Setting{At: source.Location{File: f.Name}}, f.Name)
	f.Text = text
	return ok
}

// readCounts reads the number of each process: web=2,worker=3, or all=1.
func (f *formation) readCounts(_ *draft.Block, s source.Setting) {
	for pair := range strings.SplitSeq(strings.ReplaceAll(s.Value, " ", ""), ",") {
		name, count, ok := strings.Cut(pair, "=")
		n, err := strconv.Atoi(count)
		switch {
		case !ok || err != nil || n < 0:
			f.Wrong(s, fmt.Sprintf("%q is not a number of processes", pair), "write for example web=2,worker=1")
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
		path := draft.JoinPath(f.root, file)
		text, err := f.Read(path)
		if err != nil && file == ".env" {
			continue
		}
		f.env = append(f.env, path)
		s := source.Setting{At: source.Location{File: path}, Text: "the file"}
		if err := environment.CheckFile(path, text); err != nil {
			f.Head.Lacks(s, "supervisord cannot read it: "+err.Error())
		}
		if strings.Contains(text, "$") {
			f.Head.Lacks(s, "supervisord does not expand $VARIABLE in environment files: write the value")
		}
		if m := environmentPort().FindStringSubmatch(text); m != nil {
			f.port, _ = strconv.Atoi(m[1])
			f.portFile = true
			f.Say(fmt.Sprintf("%s sets PORT, which would be the port of every program: each command sets its own, from %d.",
				path, f.port))
		}
	}
}

// processes converts the lines of a Procfile.
func (f *formation) processes() {
	var comments []string
	index := 0
	for i, line := range strings.Split(source.Normalize(f.Text), "\n") {
		at := source.Location{File: f.Name, Line: i + 1}
		trimmed := strings.TrimSpace(line)
		m := procfileLine().FindStringSubmatch(line)
		switch {
		case trimmed == "":
			comments = nil
		case strings.HasPrefix(trimmed, "#"):
			comments = append(comments, strings.TrimSpace(strings.TrimLeft(trimmed, "# ")))
		case m == nil:
			f.Head.Lacks(source.Setting{At: at, Text: trimmed}, "it is not NAME: COMMAND, and foreman ignores it")
		default:
			f.process(source.Setting{At: at, Key: m[1], Value: strings.TrimSpace(m[2]), Text: line, Comments: comments},
				f.port+100*index)
			index, comments = index+1, nil
		}
	}
}

// process converts one process.
func (f *formation) process(s source.Setting, port int) {
	n, given := f.counts[s.Key]
	if !given {
		n = f.otherwise
	}
	p := f.NewProgram(s, s.Key)
	if p.Off = n < 1; p.Off {
		p.Lacks(s, "the formation has none of it; remove the # of these lines to run one")
	}
	if s.Key == "release" {
		p.Off = true
		p.Lacks(s, "use reload.preflight of the program that is released for a command before each release")
	}
	stays, ok := f.command(p, s)
	if !ok {
		return
	}
	f.set(p, s, n, port)
	if stays {
		p.Note("stop", s, "a shell stays in front of the program: the signal goes to both")
		p.Set("stop.group", true)
	}
}

// set sets what foreman does for every process.
func (f *formation) set(p *draft.Block, s source.Setting, n, port int) {
	p.Set("command", "") // at its position; set again below
	p.Set("directory", f.root)
	if len(f.env) > 0 {
		p.Set("environment_file", f.env)
	}
	p.Set("environment.PORT", strconv.Itoa(port))
	if f.Head.Given["timeout"].Key != "" {
		f.stopAfter(p, s)
	}
	for _, socket := range f.sockets[s.Key] {
		p.Listener(socket, socket.Key, socket.Value)
	}
	delete(f.sockets, s.Key)
	p.NoPort = s.Key != "web" && !strings.Contains(s.Value, "PORT") // which foreman sets for every process
	p.Serve(s)
	if p.Value("stop.timeout") == "" {
		f.stopAfter(p, s)
	}
	switch own := len(p.Listen) == 0; {
	case own && n > 1:
		p.Run.Export("PORT", shell.Part(shell.Unquoted, fmt.Sprintf("$((%d + SUPERVISORD_SLOT))", port)))
	case own && f.portFile: // which would win over the program's own
		p.Run.Export("PORT", strconv.Itoa(port))
	}
	p.Argv()
	if n > 1 {
		s.Value = strconv.Itoa(n)
		p.Apply(draft.To("workers", draft.AsWorkers), s)
	}
	if p.Unset("ready") {
		p.ReadyAfter(s, 1)
	}
}

func (f *formation) stopAfter(p *draft.Block, s source.Setting) {
	if timeout, ok := p.Duration("stop.timeout", s, f.timeout, 0.001); ok {
		p.Set("stop.timeout", timeout)
	}
}

// shellCommands are commands that only a shell can run.
var shellCommands = []string{"cd", ".", "source", "eval", "exec", "export", "set", "umask", "ulimit", "trap", "test",
	"[", ":"}

// command reads the command of a process: words if no shell is needed, otherwise a script. It reports whether the shell
// stays in front of the program.
func (f *formation) command(p *draft.Block, s source.Setting) (stays, ok bool) {
	if strings.Contains(s.Value, shell.Placeholder) {
		p.Wrong(s, "contains "+shell.Placeholder+", which refers to a listener in supervisord",
			"write it differently, for example {''fd:")
		return false, false
	}
	file, ok := f.parseShell(s, s.Value, "fix the command")
	if !ok {
		return false, false
	}
	p.Run.Script = s.Value
	if len(file.Stmts) != 1 {
		return true, true
	}
	call, simple := shell.SimpleCommand(file.Stmts[0])
	if !simple || len(call.Args) == 0 {
		return true, true
	}
	if words, ok := shell.DynamicWords(call); ok && len(file.Stmts[0].Redirs) == 0 {
		if _, known := servers.Recognize(words); known {
			p.Run.Script, p.Run.Words = "", words
			return false, true
		}
	}
	return runs(p, s.Value, call, len(file.Stmts[0].Redirs) > 0), true
}

// runs makes a simple command the program's: as words if no shell is needed. It reports whether the shell stays.
func runs(p *draft.Block, script string, call *syntax.CallExpr, redirected bool) (stays bool) {
	var words []string
	literal := true
	for _, w := range call.Args {
		word, ok := shell.LiteralWord(w)
		words, literal = append(words, word), literal && ok
	}
	switch {
	case words[0] == "exec":
	case slices.Contains(shellCommands, words[0]):
		return true
	case len(call.Assigns) > 0:
		p.Run.Script = "exec env " + script
	case !literal || redirected:
		p.Run.Script = "exec " + script
	default:
		p.Run.Script, p.Run.Words = "", words
	}
	return false
}

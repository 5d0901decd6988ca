package convert

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/pattern"
)

// procfileLine is a process of a Procfile: foreman takes letters, digits and _, its successors - too.
var procfileLine = pattern.Lazy(`(?m)^([A-Za-z0-9_-]+):[ \t]*(\S.*)$`)

// foremanFlags are the options of foreman start and honcho start.
var foremanFlags = flags{known: []flag{
	{"procfile", "f", true}, {"root", "d", true}, {"app-root", "", true}, {"env", "e", true}, {"formation", "m", true}, {"concurrency", "c", true},
	{"port", "p", true}, {"timeout", "t", true}, {"color", "", false}, {"no-color", "", false}, {"no-colour", "", false},
	{"timestamp", "", false}, {"no-timestamp", "", false}, {"no-prefix", "", false}, {"quiet", "q", true},
}, anywhere: true}

// formation is how foreman was asked to run a Procfile.
type formation struct {
	procfile, root string
	env            []string // files; nil: .env, if it is there
	counts         map[string]int
	otherwise      int
	port           int
	timeout        float64
}

// procfile converts a Procfile, or a command line of foreman or honcho with the Procfile that it names.
func (d *document) procfile(s Source) {
	f := formation{counts: map[string]int{}, otherwise: 1, port: 5000, timeout: 5, root: d.Dir}
	if s.Args != nil && !d.foreman(s, &f) {
		return
	}
	if s.Args != nil {
		data, err := d.Read(f.procfile)
		if err == nil {
			err = checkText(place{file: f.procfile}, data)
		}
		if err != nil {
			d.wrong(item{at: place{file: f.procfile}}, "cannot read it: "+err.Error(), "name the Procfile with -f")
			return
		}
		s.Name, s.Text = f.procfile, data
	}
	d.environmentFiles(&f)
	d.say("Under foreman all processes end when one does; here each is started again by itself. A Procfile's server opens $PORT itself, so that the old one\n" +
		"has to go first (strategy = \"stop-first\"). With a listener, which the server takes from LISTEN_FDS, a reload costs no request.")
	d.processes(s, &f)
}

// foreman reads the options of a command line.
func (d *document) foreman(s Source, f *formation) bool {
	c, _ := d.commandLine(s)
	options, rest, ok := foremanFlags.parse(d, c.words[1:])
	if !ok {
		return false
	}
	if len(rest) == 0 || rest[0].String() != "start" {
		d.wrong(item{at: c.words[0].at}, "starts nothing", "write foreman start …")
		return false
	}
	for _, o := range options {
		d.foremanOption(o, f)
	}
	if f.procfile == "" {
		f.procfile = filepath.Join(f.root, "Procfile")
	} else if f.root == d.Dir {
		f.root = filepath.Dir(f.procfile)
	}
	if len(rest) > 1 {
		f.otherwise, f.counts = 0, map[string]int{}
		for _, w := range rest[1:] {
			f.counts[w.String()] = 1
		}
	}
	return len(d.problems) == 0
}

func (d *document) foremanOption(o given, f *formation) {
	switch o.flag.long {
	case "procfile":
		f.procfile = d.path(o.value)
	case "root", "app-root":
		f.root = d.path(o.value)
	case "env":
		f.env = strings.Split(o.value, ",")
	case "formation", "concurrency":
		d.formation(o.item, f)
	case "port":
		f.port, _ = d.integer(o.item)
	case "timeout":
		f.timeout, _ = d.number(o.item)
	default:
		d.lacks(o.item, "each program's output is its own: `supervisord logs NAME`")
	}
}

// formation reads how many there are of each process: web=2,worker=3, and all=1.
func (d *document) formation(it item, f *formation) {
	for pair := range strings.SplitSeq(strings.ReplaceAll(it.value, " ", ""), ",") {
		name, count, ok := strings.Cut(pair, "=")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || n < 0 {
			d.wrong(it, fmt.Sprintf("%q is no number of processes", pair), "write such as web=2,worker=1")
			return
		}
		if name == "all" {
			f.otherwise = n
		} else {
			f.counts[name] = n
		}
	}
}

// environmentPort is the variable PORT in an .env file.
var environmentPort = pattern.Lazy(`(?m)^\s*(?:export\s+)?PORT\s*=\s*['"]?([0-9]+)['"]?\s*$`)

// environmentFiles finds the files with variables. A PORT in them is where the ports begin.
func (d *document) environmentFiles(f *formation) {
	files := f.env
	if files == nil {
		files = []string{".env"}
	}
	f.env = nil
	for _, file := range files {
		path := file
		if !filepath.IsAbs(path) {
			path = filepath.Join(f.root, file)
		}
		data, err := d.Read(path)
		if err != nil && file == ".env" {
			continue
		}
		f.env = append(f.env, path)
		d.environmentFile(path, data)
		if m := environmentPort().FindStringSubmatch(data); m != nil {
			f.port, _ = strconv.Atoi(m[1])
			d.say(fmt.Sprintf("%s has PORT, which would be the port of every program: each command sets its own, from %d.", path, f.port))
		}
	}
}

// environmentFile tells how supervisord reads a file otherwise than foreman.
func (d *document) environmentFile(path, data string) {
	it := item{at: place{file: path}, text: "the file"}
	if err := config.CheckEnvironmentFile(path, data); err != nil {
		d.lacks(it, "supervisord cannot read it yet: "+err.Error())
	}
	if strings.Contains(data, "$") {
		d.lacks(it, "$VARIABLE is not replaced in environment files: write what it stands for")
	}
}

// processes converts the lines of a Procfile.
func (d *document) processes(s Source, f *formation) {
	var comments []string
	index := 0
	for i, line := range strings.Split(normal(s.Text), "\n") {
		at := place{s.Name, i + 1}
		m := procfileLine().FindStringSubmatch(line)
		switch {
		case strings.TrimSpace(line) == "":
			comments = nil
		case strings.HasPrefix(strings.TrimSpace(line), "#"):
			comments = append(comments, strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), "# ")))
		case m == nil:
			d.lacks(item{at: at, text: strings.TrimSpace(line)}, "it is no name: command, and foreman ignores it")
		default:
			d.process(item{at: at, key: m[1], value: strings.TrimSpace(m[2]), text: line, comments: comments}, f, index)
			index, comments = index+1, nil
		}
	}
}

// process converts one process.
func (d *document) process(it item, f *formation, index int) {
	n, said := f.counts[it.key]
	if !said {
		n = f.otherwise
	}
	p := d.program(it, it.key)
	p.off = n < 1
	if p.off {
		p.lacks(it, "there is none of it in the formation; remove the # of these lines for one")
	}
	if it.key == "release" {
		p.off = true
		p.lacks(it, "what is run before a release is reload.preflight of the program that is released")
	}
	port := f.port + 100*index
	run, ok := d.procfileCommand(it)
	if !ok {
		return
	}
	if n > 1 {
		run.exports = append(run.exports, export{"PORT", text{{shell: fmt.Sprintf("$((%d + SUPERVISORD_SLOT))", port)}}})
	} else if len(f.env) > 0 && d.portInFile(f) {
		run.exports = append(run.exports, export{"PORT", plain(strconv.Itoa(port))})
	}
	p.set("", "command", run.argv())
	p.set("", "directory", f.root)
	if n > 1 {
		p.workers(it, n)
	}
	if len(f.env) > 0 {
		p.set("", "environment_file", f.env)
	}
	p.set("environment", "PORT", strconv.Itoa(port))
	p.readyAfter(it, 1)
	p.set("reload", "strategy", "stop-first")
	p.seconds("stop", "timeout", it, f.timeout, 1)
	if run.script != "" && !strings.HasPrefix(run.script, "exec ") {
		p.note("stop", it, "a shell stays before the program: the signal goes to both")
		p.set("stop", "group", true)
	}
}

// portInFile reports whether the files of variables have a PORT, which would win over a program's own.
func (d *document) portInFile(f *formation) bool {
	for _, path := range f.env {
		if data, err := d.Read(path); err == nil && environmentPort().MatchString(data) {
			return true
		}
	}
	return false
}

// shellWords begin what only a shell can do itself.
var shellWords = []string{"cd", ".", "source", "eval", "exec", "export", "set", "umask", "ulimit",
	"if", "while", "until", "for", "case", "{", "!", "trap", "test", "[", ":"}

// procfileCommand is the command of a process: words, where no shell is needed, else what a shell is given.
func (d *document) procfileCommand(it item) (invocation, bool) {
	if strings.Contains(it.value, placeholder) {
		d.wrong(it, "has "+placeholder+", which means a listener to supervisord", "write it otherwise, such as {''fd:")
		return invocation{}, false
	}
	words, err := split(plain(it.value), true)
	if it.value == "" {
		err = errors.New("is empty")
	}
	if err != nil {
		d.wrong(it, err.Error(), "write the whole command behind the colon")
		return invocation{}, false
	}
	shell, operators, assigned := false, false, false
	for i, w := range words {
		name, _, ok := strings.Cut(w.String(), "=")
		assigned = assigned || i == 0 && ok && exportable(name)
		for _, a := range w {
			if !a.quoted {
				shell = shell || strings.ContainsRune("$`*?[~{", a.r)
				operators = operators || strings.ContainsRune("|&;<>()\n", a.r)
			}
		}
	}
	switch {
	case operators || len(words) == 0 || slices.Contains(shellWords, words[0].String()):
		return invocation{script: it.value}, true
	case assigned:
		return invocation{script: "exec env " + it.value}, true
	case shell || len(words[0]) == 0:
		return invocation{script: "exec " + it.value}, true
	}
	return invocation{words: words}, true
}

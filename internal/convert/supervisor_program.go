package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// supervisorProgram is a process of a [program:x], or all of them where they are alike, while it is converted.
type supervisorProgram struct {
	*program
	file           *supervisorFile
	section        *section
	title          string // x
	known          map[string]text
	run            invocation
	command        item
	stdout, stderr stream
	redirect       bool
	fcgi           fcgiSocket
	isFCGI         bool
	autorestart    item
	exitCodes      item
	said           map[string]bool // keys that are there
}

// programs converts a section to one program, or to one for each process where the processes differ.
func (f *supervisorFile) programs(s *section, title string, isFCGI bool) {
	n, ok := f.numprocs(s)
	if !ok {
		return
	}
	first := 0
	if it, ok := s.get("numprocs_start"); ok {
		if first, ok = f.integer(it); !ok {
			return
		}
	}
	differ := false
	for _, e := range s.entries {
		differ = differ || e.key != "process_name" && strings.Contains(e.value, "%(process_num)")
	}
	processName, named := s.get("process_name")
	if n > 1 && !strings.Contains(processName.value, "%(process_num)") {
		f.wrong(or(named, processName, s.item), "numprocs above 1 needs %(process_num) in process_name", "write process_name = %(program_name)s_%(process_num)02d")
		return
	}
	const most = 1000
	if n > most && differ {
		f.wrong(s.item, fmt.Sprintf("has %d processes that differ", n), fmt.Sprintf("write at most %d", most))
		return
	}
	if n <= 1 || !differ {
		f.process(s, title, title, first, n, isFCGI, false)
		return
	}
	for i := range n {
		if f.enough() || i > 0 && len(f.problems) > 0 { // what is wrong with one is wrong with all
			return
		}
		known := f.ofProcess(title, first+i, n)
		t, bad := expand(processName.value, processName.at.line, f.known(known))
		if bad != nil {
			f.wrong(processName, bad.what, bad.remedy)
			return
		}
		f.process(s, title, t.String(), first+i, n, isFCGI, i > 0)
	}
}

func or(first bool, a, b item) item {
	if first {
		return a
	}
	return b
}

// numprocs reads how many processes there are.
func (f *supervisorFile) numprocs(s *section) (int, bool) {
	it, ok := s.get("numprocs")
	if !ok {
		return 1, true
	}
	value, ok := f.now(it)
	if !ok {
		return 1, len(f.problems) == 0
	}
	it.value = value
	return f.integer(it)
}

// ofProcess are the values for %(…)s of one process.
func (f *supervisorFile) ofProcess(title string, number, n int) map[string]text {
	group := title
	if g, ok := f.groups[title]; ok {
		group = g
	}
	return map[string]text{
		"program_name": plain(title), "group_name": plain(group),
		"process_num": plain(strconv.Itoa(number)), "numprocs": plain(strconv.Itoa(n)),
	}
}

// process converts a section to one program.
func (f *supervisorFile) process(s *section, title, name string, number, n int, isFCGI, quiet bool) {
	p := &supervisorProgram{
		program: f.program(s.item, name), file: f, section: s, title: title, known: f.ofProcess(title, number, n),
		isFCGI: isFCGI, said: map[string]bool{},
		stdout: stream{kind: kept, size: supervisorLogSize, backups: supervisorLogFiles},
		stderr: stream{kind: kept, size: supervisorLogSize, backups: supervisorLogFiles},
	}
	if p.quiet = quiet; quiet {
		p.lead = nil
	}
	p.off = n < 1
	if _, ok := s.get("command"); !ok {
		f.wrong(s.item, "has no command", "write command = …")
		return
	}
	p.environment()
	for _, e := range s.entries {
		p.entry(e)
	}
	for _, it := range f.inherited {
		if !p.said[it.key] {
			it.comments = nil
			supervisorKeys[it.key](p, it)
		}
	}
	p.finish()
}

// entry converts a key.
func (p *supervisorProgram) entry(e entry) {
	convert, known := supervisorKeys[e.key]
	p.comments = append(p.comments, p.unsaid(e.comments)...)
	switch {
	case e.over != nil:
		p.note("", e.item, fmt.Sprintf("does not count: %s has it again", e.over))
	case known:
		p.said[e.key] = true
		convert(p, e.item)
	default:
		if key, ok := nearestKey(e.key); ok {
			p.lacks(e.item, "supervisor ignores it too; "+key+" may be meant")
		} else {
			p.lacks(e.item, "supervisor ignores it too")
		}
	}
}

// unsaid are the comments of the source, unless they were there at the first of several processes.
func (p *supervisorProgram) unsaid(comments []string) []string {
	if p.quiet {
		return nil
	}
	return comments
}

// nearestKey is a known key that begins alike.
func nearestKey(key string) (string, bool) {
	for _, known := range slices.Sorted(maps.Keys(supervisorKeys)) {
		alike := strings.ReplaceAll(key, "_", "") == strings.ReplaceAll(known, "_", "")
		if len(key) > 3 && (alike || strings.HasPrefix(known, key[:len(key)-1]) || strings.HasPrefix(key, known)) {
			return known, true
		}
	}
	return "", false
}

// expand puts the values of %(…)s in.
func (p *supervisorProgram) expand(it item) (text, bool) {
	t, bad := expand(it.value, it.at.line, p.file.known(p.known))
	if bad != nil {
		p.wrong(it, bad.what, bad.remedy)
	}
	return t, bad == nil
}

// now is a value for a key that no shell can fill in.
func (p *supervisorProgram) now(it item) (item, bool) {
	t, ok := p.expand(it)
	if !ok {
		return it, false
	}
	value, taken, missing := p.file.resolve(t)
	switch {
	case missing != "":
		p.lacks(it, missing+" is not set here: write its value")
		return it, false
	case taken != "":
		p.note("", it, taken+" as it was at the conversion")
	}
	it.text = it.String()
	it.value = value
	return it, true
}

// environment sets the variables: those of [supervisord], then the program's own.
func (p *supervisorProgram) environment() {
	own, has := p.section.get("environment")
	var pairs []pair
	for _, name := range p.file.names {
		pairs = append(pairs, pair{name, p.file.environment[name]})
	}
	if has {
		p.said["environment"] = true
		t, ok := p.expand(own)
		if !ok {
			return
		}
		mine, err := pairsOf(t)
		if err != nil {
			p.wrong(own, err.Error(), `write KEY="value",KEY2="value2"`)
			return
		}
		pairs = append(pairs, mine...)
	}
	for _, v := range pairs {
		p.variableOf(own, v)
		p.known["ENV_"+v.name] = v.value
	}
}

func (p *supervisorProgram) variableOf(it item, v pair) {
	it.key, it.value, it.text = v.name, v.value.String(), "environment "+v.name+"="+v.value.String()
	if value, ok := v.value.literal(); ok || !v.value.dynamic() {
		if !ok {
			value = v.value.String()
		}
		p.variable(it, v.name, value)
		return
	}
	if !exportable(v.name) {
		p.variable(it, v.name, "") // says why it cannot be
		return
	}
	p.run.exports = append(p.run.exports, export(v))
}

// finish writes what depends on several keys.
func (p *supervisorProgram) finish() {
	if p.redirect {
		p.stderr = p.stdout
	}
	if p.isFCGI {
		p.socket()
	} else {
		p.set("reload", "strategy", "stop-first")
		p.file.say("Under supervisor a program is stopped before it is started again: strategy = \"stop-first\" does so here. Give it a listener\n" +
			"([[program.NAME.listen]]) and remove the line, and a reload costs no request.")
	}
	if p.command.key != "" {
		p.set("", "command", p.run.argv())
	}
	p.outputs(p.stdout, p.stderr)
	p.restarts()
	if !p.said["startsecs"] {
		p.readyAfter(item{at: p.section.at, key: "startsecs", value: "1"}, 1)
	}
	if !p.said["stopwaitsecs"] {
		p.set("stop", "timeout", "10s") // supervisor's default
	}
	if _, ok := p.tables[""]; ok && !p.table("").has("directory") && p.run.dir == nil {
		p.file.say("A program without directory runs in the folder of this file; under supervisor it ran where supervisord was started.")
	}
}

// restarts writes after which ends a program is started again.
func (p *supervisorProgram) restarts() {
	when := "on-failure" // supervisor's default
	switch strings.ToLower(p.autorestart.value) {
	case "":
	case "unexpected":
	case "yes", "true", "on", "1":
		when = "always"
	case "no", "false", "off", "0":
		when = "never"
	default:
		p.wrong(p.autorestart, fmt.Sprintf("%q is not known", p.autorestart.value), "write true, false or unexpected")
	}
	p.set("restart", "when", when)
	if p.exitCodes.key == "" {
		return
	}
	codes := strings.ReplaceAll(p.exitCodes.value, " ", "")
	for code := range strings.SplitSeq(codes, ",") {
		if n, err := strconv.Atoi(code); codes != "" && (err != nil || n < 0 || n > 255) {
			p.wrong(p.exitCodes, fmt.Sprintf("%q is no exit code", code), "write numbers from 0 to 255, with commas between")
			return
		}
	}
	switch {
	case when != "on-failure":
		p.note("restart", p.exitCodes, fmt.Sprintf("needs nothing: with when = %q it does not matter", when))
	case codes == "0":
		p.note("restart", p.exitCodes, "needs nothing: that is what on-failure means")
	default:
		p.lacks(p.exitCodes, "on-failure takes 0 alone as expected: let the program exit with 0 when it is done")
	}
}

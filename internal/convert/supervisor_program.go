package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// supervisorProcess is a supervisorProcess of a [program:x], or all of them where they are alike, while it is converted.
type supervisorProcess struct {
	*program
	file    *supervisorFile
	section *section
	title   string            // x
	count   int               // numprocs
	own     map[string]string // values for %(NAME)s
	fcgi    bool
}

// programsOf converts a section to one program, or to one for each process if they differ.
func (f *supervisorFile) programsOf(s *section, title string, fcgi bool) {
	count, ok1 := f.numberOf(s, "numprocs", 1)
	first, ok2 := f.numberOf(s, "numprocs_start", 0)
	if !ok1 || !ok2 {
		return
	}
	differ := slices.ContainsFunc(s.entries, func(e *entry) bool {
		return e.key != "process_name" && strings.Contains(e.value, "%(process_num)")
	})
	name, named := s.get("process_name")
	const most = 1000
	convert := func(name string, number int, quiet bool) {
		x := &supervisorProcess{file: f, section: s, title: title, count: count, own: f.ofProcess(title, number, count), fcgi: fcgi}
		x.convert(name, quiet)
	}
	switch {
	case count > 1 && !strings.Contains(name.value, "%(process_num)"):
		if !named {
			name = s.setting
		}
		f.wrong(name, "numprocs above 1 needs %(process_num) in process_name", "write process_name = %(program_name)s_%(process_num)02d")
	case count <= 1 || !differ:
		convert(title, first, false)
	case count > most:
		f.wrong(s.setting, fmt.Sprintf("has %d processes that differ", count), fmt.Sprintf("write at most %d", most))
	default:
		for i := 0; i < count && (i == 0 || len(f.draft.problems) == 0); i++ { // a mistake in one is in all
			if own, ok := f.expand(name, f.ofProcess(title, first+i, count)); ok {
				convert(show(own), first+i, i > 0)
			}
		}
	}
}

// numberOf reads a number that must be known before the processes are.
func (f *supervisorFile) numberOf(s *section, key string, otherwise int) (int, bool) {
	it, ok := s.get(key)
	if !ok {
		return otherwise, true
	}
	if it, ok = f.fill(f.head, nil)(it); !ok {
		return otherwise, len(f.draft.problems) == 0
	}
	return f.integer(it)
}

// ofProcess returns the values for %(NAME)s of one process.
func (f *supervisorFile) ofProcess(title string, number, count int) map[string]string {
	return map[string]string{"program_name": title, "group_name": cmp.Or(f.groups[title], title),
		"process_num": strconv.Itoa(number), "numprocs": strconv.Itoa(count)}
}

// convert converts the section to one program. A quiet one repeats none of the comments of the first.
func (x *supervisorProcess) convert(name string, quiet bool) {
	from := x.section.setting
	if _, ok := x.section.get("command"); !ok {
		x.file.wrong(from, "has no command", "write command = …")
		return
	}
	if quiet {
		from.comments = nil
	}
	x.program = x.file.newProgram(from, name)
	x.quiet, x.off = quiet, x.count < 1
	x.fill = x.file.fill(x.program, x.own)
	x.variables()
	known := x.file.programRules(x)
	x.each(x.section, known, func(p *program, s setting) { p.lacks(s, nearest(s.key, known)) })
	for _, s := range x.file.inherited {
		if _, given := x.given[s.key]; !given {
			x.apply(known[s.key], s)
		}
	}
	x.finish()
}

// format is a % in a value: %%, %(NAME)s with flags, width, precision and a letter, or one that Python would reject.
var format = pattern.Lazy(`%(?:%|\(([^)]*)\)([-+# 0]{0,4}(?:[1-9][0-9]?)?(?:\.[0-9]{1,2})?)([sdiuxXo]))?`)

// expand replaces %(NAME)s as Python does. What only a shell knows becomes a part.
func (f *supervisorFile) expand(s setting, own map[string]string) (string, bool) {
	var b strings.Builder
	end := 0
	for _, at := range format().FindAllStringSubmatchIndex(s.value, -1) {
		b.WriteString(s.value[end:at[0]])
		whole := s.value[at[0]:at[1]]
		end = at[1]
		if whole == "%%" {
			b.WriteString("%")
			continue
		}
		if at[2] < 0 {
			f.wrong(s, fmt.Sprintf("supervisor rejects the %% at %q", shorten(s.value[at[0]:min(len(s.value), at[0]+12)])), "write %% for a percent sign")
			return "", false
		}
		name, flags, letter := s.value[at[2]:at[3]], s.value[at[4]:at[5]], s.value[at[6]:at[7]]
		value, ok := f.valueOf(name, own)
		if !ok {
			f.wrong(s, fmt.Sprintf("%%(%s) is unknown", name), "write a name that supervisor knows, or the value")
			return "", false
		}
		if value, ok = formatted(value, flags, letter, name == "process_num" || name == "numprocs"); !ok {
			f.wrong(s, fmt.Sprintf("%s cannot be formatted like this", whole), "write %("+name+")s")
			return "", false
		}
		b.WriteString(value)
	}
	b.WriteString(s.value[end:])
	return b.String(), true
}

// valueOf returns the value for %(NAME)s: one of the process, a variable of [supervisord], or what only the machine knows.
func (f *supervisorFile) valueOf(name string, own map[string]string) (string, bool) {
	if value, ok := own[name]; ok {
		return value, true
	}
	variable, isVariable := strings.CutPrefix(name, "ENV_")
	switch {
	case name == "here":
		return f.Dir, true
	case name == "host_node_name":
		return part(shellPart, "$(uname -n)"), true
	case !isVariable:
		return "", false
	}
	for _, v := range slices.Backward(f.variables) {
		if v.name == variable {
			return v.value, true
		}
	}
	return part(shellPart, "${"+variable+"}"), exportable(variable)
}

// formatted formats a value as Python's % does, or returns false where Python would fail.
func formatted(value, flags, letter string, numeric bool) (string, bool) {
	if dynamic(value) {
		return value, flags == "" && letter == "s"
	}
	if letter == "s" {
		return fmt.Sprintf("%"+strings.TrimLeft(strings.Trim(flags, "+# "), "0+# ")+"s", value), true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if letter == "i" || letter == "u" {
		letter = "d"
	}
	return fmt.Sprintf("%"+flags+letter, n), err == nil && numeric
}

// fill returns the function that expands a value for a key that no shell reads: what only the machine knows is taken as it is now.
func (f *supervisorFile) fill(p *program, own map[string]string) func(setting) (setting, bool) {
	return func(s setting) (setting, bool) {
		value, ok := f.expand(s, own)
		if !ok {
			return s, false
		}
		if rest, ok := strings.CutPrefix(value, "~/"); ok {
			value = part(shellPart, "${HOME}") + "/" + rest
		}
		return p.resolved(s, value)
	}
}

// variables sets the environment: that of [supervisord], then the program's own. Other keys refer to it, so it comes first.
func (x *supervisorProcess) variables() {
	pairs := slices.Clone(x.file.variables)
	s, ok := x.section.get("environment")
	if ok {
		pairs = append(pairs, x.file.pairs(s, x.own)...)
	}
	for _, v := range pairs {
		s.key, s.value, s.text = v.name, show(v.value), "environment "+v.name+"="+show(v.value)
		x.environment(s, v.name, v.value)
		x.own["ENV_"+v.name] = v.value
	}
}

// token is a token of Python's shlex outside its POSIX mode: quotes stay, and nothing escapes them.
var token = pattern.Lazy(`#[^\n]*|"[^"]*"|'[^']*'|(?:[A-Za-z0-9_/.+\-():]|\x00[^\x00]*\x00)(?:[A-Za-z0-9_/.+\-():"']|\x00[^\x00]*\x00)*|[^ \t\r\n]`)

// pairs reads KEY="value",KEY2=value2 as supervisor does, which does not look at the token between two pairs.
func (f *supervisorFile) pairs(s setting, own map[string]string) []variable {
	value, ok := f.expand(s, own)
	if !ok {
		return nil
	}
	tokens := slices.DeleteFunc(token().FindAllString(value, -1), func(t string) bool { return t[0] == '#' })
	var pairs []variable
	open := slices.Contains(tokens, `"`) || slices.Contains(tokens, "'") // a quote that is not closed
	for i := 0; i < len(tokens); i += 4 {
		if open || i+2 >= len(tokens) || tokens[i+1] != "=" {
			f.wrong(s, fmt.Sprintf("KEY=value is incomplete at %q", shorten(tokens[i])), `write KEY="value",KEY2="value2"`)
			return nil
		}
		pairs = append(pairs, variable{show(tokens[i]), strings.Trim(tokens[i+2], `"'`)})
	}
	return pairs
}

func (x *supervisorProcess) processName(p *program, s setting) {
	switch {
	case s.value == "%(program_name)s":
	case p.name != validName(x.title):
		p.note("", s, "names each of the programs")
	default:
		p.lacks(s, "a worker is identified by its slot, from 0: SUPERVISORD_SLOT")
	}
}

// workers sets how many workers there are, unless each process is a program.
func (x *supervisorProcess) workers(p *program, s setting) {
	command, _ := x.section.get("command")
	switch {
	case x.count < 1:
		p.lacks(s, runsNone)
	case p.name != validName(x.title) || strings.Contains(command.value, "%(process_num)") && x.count > 1:
		p.note("", s, fmt.Sprintf("the processes differ by process_num, so each is a program; with a listener, one program and workers = %d would do", x.count))
	default:
		s.value = strconv.Itoa(x.count)
		if n, ok := asWorkers(p, "", s); ok {
			p.set("workers", n)
		}
	}
}

func (x *supervisorProcess) firstNumber(p *program, s setting) {
	if strings.TrimSpace(s.value) != "0" && p.value("workers") != "" {
		p.lacks(s, "slots count from 0: SUPERVISORD_SLOT")
	}
}

// finish sets what depends on several keys, and what supervisor does without any.
func (x *supervisorProcess) finish() {
	if x.fcgi {
		x.socket()
	} else {
		x.set("reload.strategy", "stop-first")
		x.say(stopsFirst)
	}
	x.argv()
	stdout, stderr := x.stream("stdout"), x.stream("stderr")
	if x.isOn("redirect_stderr") {
		stderr = stdout
	}
	x.outputs(stdout, stderr)
	x.otherwise("restart.when", "on-failure")
	if s, ok := x.get("exitcodes"); ok {
		x.exitCodes(s)
	}
	if x.unset("ready") {
		x.readyAfter(setting{at: x.section.at, key: "startsecs", value: "1"}, 1)
	}
	x.otherwise("stop.timeout", "10s")
	if x.value("directory") == "" && x.run.dir == "" {
		x.say(fmt.Sprintf(runsHere, "supervisor", "supervisord"))
	}
}

// otherwise sets a key that the source has not set to the source's default.
func (p *program) otherwise(key string, value any) {
	if p.value(key) == "" {
		p.set(key, value)
	}
}

// stream reads where an output goes.
func (x *supervisorProcess) stream(name string) outputStream {
	st := outputStream{kind: captured, size: 50 << 20, backups: 10} // supervisor's defaults
	if s, ok := x.get(name + "_logfile_maxbytes"); ok {
		st.setting = s
		st.size, _ = x.bytes(s)
	}
	if s, ok := x.get(name + "_logfile_backups"); ok {
		st.backups, _ = x.integer(s)
	}
	if s, ok := x.get(name + "_logfile"); ok {
		st.setting = s
		switch strings.ToLower(s.value) {
		case "none", "off", "":
			st.kind = discarded
		case "auto":
		case "syslog":
			st.kind = inherited
			x.lacks(s, "output goes where supervisord's own goes: under systemd to the journal")
		default:
			st.to(s.value)
		}
	}
	if st.kind != toFile && x.isOn(name+"_syslog") {
		st.kind = inherited
	}
	return st
}

// exitCodes comments the exits after which supervisor does not restart a program.
func (x *supervisorProcess) exitCodes(s setting) {
	codes := strings.ReplaceAll(s.value, " ", "")
	for code := range strings.SplitSeq(codes, ",") {
		if n, err := strconv.Atoi(code); codes != "" && (err != nil || n < 0 || n > 255) {
			x.wrong(s, fmt.Sprintf("%q is not an exit code", code), "write numbers from 0 to 255, separated by commas")
			return
		}
	}
	switch when := x.value("restart.when"); {
	case when != `"on-failure"`:
		x.note("restart", s, "not needed: exit codes do not matter with when = "+when)
	case codes == "0":
		x.note("restart", s, "not needed: on-failure means this")
	default:
		x.lacks(s, "on-failure expects only 0: let the program exit with 0 when it is done")
	}
}

// socket sets the listener of an [fcgi-program:x], which is its stdin.
func (x *supervisorProcess) socket() {
	s, ok := x.get("socket")
	if !ok {
		if _, given := x.given["socket"]; !given {
			x.wrong(x.section.setting, "has no socket", "write for example socket = unix:///run/x.sock")
		}
		return
	}
	path, unix := strings.CutPrefix(s.value, "unix://")
	address, tcp := strings.CutPrefix(s.value, "tcp://")
	if unix {
		address = "unix:" + path
	}
	if !unix && !tcp {
		x.wrong(s, fmt.Sprintf("%q is not a socket", s.value), "write unix:///path or tcp://host:port")
		return
	}
	t := x.listener(s, "", address)
	if t == nil {
		x.off = true
		return
	}
	if s, ok := x.get("socket_backlog"); ok {
		if n, ok := x.integer(s); ok && n >= 1 {
			t.set("backlog", n)
		}
	}
	x.socketOwner(t, unix)
	x.set("stdin", "socket") // FastCGI expects it there
}

// socketOwner sets the permissions of a unix socket.
func (x *supervisorProcess) socketOwner(t *table, unix bool) {
	owner, owned := x.get("socket_owner")
	mode, moded := x.get("socket_mode")
	if !unix {
		for _, s := range []setting{owner, mode} {
			if s.key != "" {
				x.wrong(s, "is only for a unix socket", "remove it")
			}
		}
		return
	}
	t.set("mode", "0700") // supervisor's default
	if moded {
		if n, ok := x.mode(mode); ok && n != 0 {
			t.set("mode", fmt.Sprintf("%04o", n))
		}
	}
	user, group, _ := strings.Cut(owner.value, ":")
	if user == "" || !owned {
		of, _ := x.get("user") // as supervisor does
		user = of.value
	}
	if user != "" {
		t.set("user", user)
	}
	if group != "" {
		t.set("group", group)
	}
}

package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/pattern"
)

// supervisorProcess is a supervisorProcess of a [program:x], or all of them where they are alike, while it is
// converted.
type supervisorProcess struct {
	*draft.Block
	file    *supervisorFile
	section *source.Section
	title   string            // x
	count   int               // numprocs
	own     map[string]string // values for %(NAME)s
	fcgi    bool
}

// programsOf converts a section to one program, or to one for each process if they differ.
func (f *supervisorFile) programsOf(s *source.Section, title string, fcgi bool) {
	count, ok1 := f.numberOf(s, "numprocs", 1)
	first, ok2 := f.numberOf(s, "numprocs_start", 0)
	if !ok1 || !ok2 {
		return
	}
	differ := slices.ContainsFunc(s.Entries, func(e *source.Item) bool {
		return e.Key != "process_name" && strings.Contains(e.Value, "%(process_num)")
	})
	name, named := s.Get("process_name")
	const most = 1000
	convert := func(name string, number int, quiet bool) {
		x := &supervisorProcess{file: f, section: s, title: title, count: count, own: f.ofProcess(title, number, count),
			fcgi: fcgi}
		if fcgi && count > 1 {
			x.own["process_num"] = shell.Part(shell.Unquoted, slotFrom(number))
		}
		x.convert(name, quiet)
	}
	switch {
	case count > 1 && !strings.Contains(name.Value, "%(process_num)"):
		if !named {
			name = s.Setting
		}
		f.Wrong(name, "numprocs above 1 needs %(process_num) in process_name",
			"write process_name = %(program_name)s_%(process_num)02d")
	case count <= 1 || !differ || fcgi:
		// the processes of an fcgi-program share its socket, so they are workers of one program
		convert(title, first, false)
	case count > most:
		f.Wrong(s.Setting, fmt.Sprintf("has %d processes that differ", count), fmt.Sprintf("write at most %d", most))
	default:
		for i := 0; i < count && (i == 0 || len(f.Draft.Problems) == 0); i++ { // a mistake in one is in all
			if own, ok := f.expand(name, f.ofProcess(title, first+i, count)); ok {
				convert(shell.Show(own), first+i, i > 0)
			}
		}
	}
}

// slotFrom is what a shell has for the number of a process: numprocs_start is that of slot 0.
func slotFrom(first int) string {
	if first == 0 {
		return "${SUPERVISORD_SLOT}"
	}
	return fmt.Sprintf("$((SUPERVISORD_SLOT + %d))", first)
}

// numberOf reads a number that must be known before the processes are.
func (f *supervisorFile) numberOf(s *source.Section, key string, otherwise int) (int, bool) {
	it, ok := s.Get(key)
	if !ok {
		return otherwise, true
	}
	if it, ok = f.fill(f.Head, nil)(it); !ok {
		return otherwise, len(f.Draft.Problems) == 0
	}
	return f.Integer(it)
}

// ofProcess returns the values for %(NAME)s of one process.
func (f *supervisorFile) ofProcess(title string, number, count int) map[string]string {
	return map[string]string{"program_name": title, "group_name": cmp.Or(f.groups[title], title),
		"process_num": strconv.Itoa(number), "numprocs": strconv.Itoa(count)}
}

// convert converts the section to one program. A quiet one repeats none of the comments of the first.
func (x *supervisorProcess) convert(name string, quiet bool) {
	from := x.section.Setting
	if _, ok := x.section.Get("command"); !ok {
		x.file.Wrong(from, "has no command", "write command = …")
		return
	}
	if quiet {
		from.Comments = nil
	}
	x.Block = x.file.NewProgram(from, name)
	x.Quiet, x.Off = quiet, x.count < 1
	x.Fill = x.file.fill(x.Block, x.own)
	x.variables()
	known := x.file.programRules(x)
	x.Each(x.section, known, func(p *draft.Block, s source.Setting) { p.Lacks(s, nearest(s.Key, known)) })
	for _, s := range x.file.inherited {
		if _, given := x.Given[s.Key]; !given {
			x.Apply(known[s.Key], s)
		}
	}
	x.finish()
}

// format is a % in a value: %%, %(NAME)s with flags, width, precision and a letter, or one that Python would reject.
var format = pattern.Lazy(`%(?:%|\(([^)]*)\)([-+# 0]{0,4}(?:[1-9][0-9]?)?(?:\.[0-9]{1,2})?)([sdiuxXo]))?`)

// expand replaces %(NAME)s as Python does. What only a shell knows becomes a part.
func (f *supervisorFile) expand(s source.Setting, own map[string]string) (string, bool) {
	var b strings.Builder
	end := 0
	for _, at := range format().FindAllStringSubmatchIndex(s.Value, -1) {
		b.WriteString(s.Value[end:at[0]])
		whole := s.Value[at[0]:at[1]]
		end = at[1]
		if whole == "%%" {
			b.WriteString("%")
			continue
		}
		if at[2] < 0 {
			f.Wrong(s, fmt.Sprintf("supervisor rejects the %% at %q",
				source.Shorten(s.Value[at[0]:min(len(s.Value), at[0]+12)])), "write %% for a percent sign")
			return "", false
		}
		name, flags, letter := s.Value[at[2]:at[3]], s.Value[at[4]:at[5]], s.Value[at[6]:at[7]]
		value, ok := f.valueOf(name, own)
		if !ok {
			f.Wrong(s, fmt.Sprintf("%%(%s) is unknown", name), "write a name that supervisor knows, or the value")
			return "", false
		}
		if value, ok = formatted(value, flags, letter, name == "process_num" || name == "numprocs"); !ok {
			f.Wrong(s, fmt.Sprintf("%s cannot be formatted like this", whole), "write %("+name+")s")
			return "", false
		}
		b.WriteString(value)
	}
	b.WriteString(s.Value[end:])
	return b.String(), true
}

// valueOf returns the value for %(NAME)s: one of the process, a variable of [supervisord], or what only the machine
// knows.
func (f *supervisorFile) valueOf(name string, own map[string]string) (string, bool) {
	if value, ok := own[name]; ok {
		return value, true
	}
	variable, isVariable := strings.CutPrefix(name, "ENV_")
	switch {
	case name == "here":
		return f.Dir, true
	case name == "host_node_name":
		return shell.Part(shell.Unquoted, "$(uname -n)"), true
	case !isVariable:
		return "", false
	}
	for _, v := range slices.Backward(f.variables) {
		if v.Name == variable {
			return v.Value, true
		}
	}
	return shell.Part(shell.Unquoted, "${"+variable+"}"), shell.Exportable(variable)
}

// formatted formats a value as Python's % does, or returns false where Python would fail.
func formatted(value, flags, letter string, numeric bool) (string, bool) {
	if numeric && shell.Dynamic(value) && letter != "s" {
		return shell.Part(shell.Unquoted, "$(printf %"+flags+letter+" \""+shell.Show(value)+"\")"), true
	}
	if shell.Dynamic(value) {
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

// fill returns the function that expands a value for a key that no shell reads: what only the machine knows is taken as
// it is now.
func (f *supervisorFile) fill(p *draft.Block, own map[string]string) func(source.Setting) (source.Setting, bool) {
	return func(s source.Setting) (source.Setting, bool) {
		value, ok := f.expand(s, own)
		if !ok {
			return s, false
		}
		if rest, ok := strings.CutPrefix(value, "~/"); ok {
			value = shell.Part(shell.Unquoted, "${HOME}") + "/" + rest
		}
		return p.Resolved(s, value)
	}
}

// variables sets the environment: that of [supervisord], then the program's own. Other keys refer to it, so it comes
// first.
func (x *supervisorProcess) variables() {
	pairs := slices.Clone(x.file.variables)
	s, ok := x.section.Get("environment")
	if ok {
		pairs = append(pairs, x.file.pairs(s, x.own)...)
	}
	for _, v := range pairs {
		s.Key, s.Value, s.Text = v.Name, shell.Show(v.Value), "environment "+v.Name+"="+shell.Show(v.Value)
		x.Environment(s, v.Name, v.Value)
		x.own["ENV_"+v.Name] = v.Value
	}
}

// token is a token of Python's shlex outside its POSIX mode: quotes stay, and nothing escapes them.
var token = pattern.Lazy(`#[^\n]*|"[^"]*"|'[^']*'|` +
	`(?:[A-Za-z0-9_/.+\-():]|\x00[^\x00]*\x00)(?:[A-Za-z0-9_/.+\-():"']|\x00[^\x00]*\x00)*|[^ \t\r\n]`)

// pairs reads KEY="value",KEY2=value2 as supervisor does, which does not look at the token between two pairs.
func (f *supervisorFile) pairs(s source.Setting, own map[string]string) []environment.Variable {
	value, ok := f.expand(s, own)
	if !ok {
		return nil
	}
	tokens := slices.DeleteFunc(token().FindAllString(value, -1), func(t string) bool { return t[0] == '#' })
	var pairs []environment.Variable
	open := slices.Contains(tokens, `"`) || slices.Contains(tokens, "'") // a quote that is not closed
	for i := 0; i < len(tokens); i += 4 {
		if open || i+2 >= len(tokens) || tokens[i+1] != "=" {
			f.Wrong(s, fmt.Sprintf("KEY=value is incomplete at %q", source.Shorten(tokens[i])),
				`write KEY="value",KEY2="value2"`)
			return nil
		}
		pairs = append(pairs, environment.Variable{Name: shell.Show(tokens[i]), Value: strings.Trim(tokens[i+2], `"'`)})
	}
	return pairs
}

func (x *supervisorProcess) processName(p *draft.Block, s source.Setting) {
	switch {
	case s.Value == "%(program_name)s":
	case p.ProgramName != draft.ValidName(x.title):
		p.Note("", s, "names each of the programs")
	default:
		p.Lacks(s, "a worker is identified by its slot, from 0: SUPERVISORD_SLOT")
	}
}

// workers sets how many workers there are, unless each process is a program.
func (x *supervisorProcess) workers(p *draft.Block, s source.Setting) {
	command, _ := x.section.Get("command")
	switch {
	case x.count < 1:
		p.Lacks(s, runsNone)
	case p.ProgramName != draft.ValidName(x.title) ||
		strings.Contains(command.Value, "%(process_num)") && x.count > 1 && !x.fcgi:
		p.Note("", s, fmt.Sprintf("the processes differ by process_num, so each is a program; with a listener, one "+
			"program and workers = %d would do", x.count))
	default:
		s.Value = strconv.Itoa(x.count)
		if n, ok := draft.AsWorkers(p, "", s); ok {
			p.Set("workers", n)
		}
	}
}

func (x *supervisorProcess) firstNumber(p *draft.Block, s source.Setting) {
	if strings.TrimSpace(s.Value) != "0" && p.Value("workers") != "" {
		p.Lacks(s, "slots count from 0: SUPERVISORD_SLOT")
	}
}

// finish sets what depends on several keys, and what supervisor does without any.
func (x *supervisorProcess) finish() {
	if x.fcgi {
		x.socket()
	} else {
		command, _ := x.section.Get("command")
		x.Serve(command)
	}
	x.Argv()
	stdout, stderr := x.stream("stdout"), x.stream("stderr")
	if x.IsOn("redirect_stderr") {
		stderr = stdout
	}
	x.Outputs(stdout, stderr)
	x.Otherwise("restart.when", "on-failure")
	if s, ok := x.Get("exitcodes"); ok {
		x.exitCodes(s)
	}
	if x.Unset("ready") {
		x.ReadyAfter(source.Setting{At: x.section.At, Key: "startsecs", Value: "1"}, 1)
	}
	x.Otherwise("stop.timeout", "10s")
	if x.Value("directory") == "" && x.Run.Dir == "" {
		x.Say(fmt.Sprintf(runsHere, "supervisor", "supervisord"))
	}
}

// stream reads where an output goes.
func (x *supervisorProcess) stream(name string) draft.Stream {
	st := draft.Stream{Kind: draft.Captured, Size: 50 << 20, Backups: 10} // supervisor's defaults
	if s, ok := x.Get(name + "_logfile_maxbytes"); ok {
		st.Setting = s
		st.Size, _ = x.Bytes(s)
	}
	if s, ok := x.Get(name + "_logfile_backups"); ok {
		st.Backups, _ = x.Integer(s)
	}
	if s, ok := x.Get(name + "_logfile"); ok {
		st.Setting = s
		switch strings.ToLower(s.Value) {
		case "none", "off", "":
			st.Kind = draft.Discarded
		case "auto":
		case "syslog":
			st.Kind = draft.Inherited
			x.Lacks(s, "output goes where supervisord's own goes: under systemd to the journal")
		default:
			st.To(s.Value)
		}
	}
	if st.Kind != draft.ToFile && x.IsOn(name+"_syslog") {
		st.Kind = draft.Inherited
	}
	return st
}

// exitCodes takes over the exits after which supervisor does not restart a program.
func (x *supervisorProcess) exitCodes(s source.Setting) {
	codes := strings.ReplaceAll(s.Value, " ", "")
	var others []int
	for code := range strings.SplitSeq(codes, ",") {
		n, err := strconv.Atoi(code)
		if codes != "" && (err != nil || n < 0 || n > 255) {
			x.Wrong(s, fmt.Sprintf("%q is not an exit code", code), "write numbers from 0 to 255, separated by commas")
			return
		}
		if n > 0 {
			others = append(others, n)
		}
	}
	switch when := x.Value("restart.when"); {
	case when != `"on-failure"`:
		x.Note("restart", s, "not needed: exit codes do not matter with when = "+when)
	case codes == "0":
		x.Note("restart", s, "not needed: on-failure means this")
	default:
		if len(others) > 0 {
			x.Set("success_exit_codes", others)
		}
		if !slices.Contains(strings.Split(codes, ","), "0") {
			x.Lacks(s, "exit code 0 is always a success")
		}
	}
}

// socket sets the listener of an [fcgi-program:x], which is its stdin.
func (x *supervisorProcess) socket() {
	s, ok := x.Get("socket")
	if !ok {
		if _, given := x.Given["socket"]; !given {
			x.Wrong(x.section.Setting, "has no socket", "write for example socket = unix:///run/x.sock")
		}
		return
	}
	path, unix := strings.CutPrefix(s.Value, "unix://")
	address, tcp := strings.CutPrefix(s.Value, "tcp://")
	if unix {
		address = "unix:" + path
	}
	if !unix && !tcp {
		x.Wrong(s, fmt.Sprintf("%q is not a socket", s.Value), "write unix:///path or tcp://host:port")
		return
	}
	t := x.Listener(s, "", address)
	if t == nil {
		x.Off = true
		return
	}
	if s, ok := x.Get("socket_backlog"); ok {
		if n, ok := x.Integer(s); ok && n >= 1 {
			t.Set("backlog", n)
		}
	}
	x.socketOwner(t, unix)
	t.Set("fd", 0) // FastCGI expects it there
}

// socketOwner sets the permissions of a unix socket.
func (x *supervisorProcess) socketOwner(t *draft.TOMLTable, unix bool) {
	owner, owned := x.Get("socket_owner")
	mode, moded := x.Get("socket_mode")
	if !unix {
		for _, s := range []source.Setting{owner, mode} {
			if s.Key != "" {
				x.Wrong(s, "is only for a unix socket", "remove it")
			}
		}
		return
	}
	t.Set("mode", "0700") // supervisor's default
	if moded {
		if n, ok := x.Mode(mode); ok && n != 0 {
			t.Set("mode", fmt.Sprintf("%04o", n))
		}
	}
	user, group, _ := strings.Cut(owner.Value, ":")
	if user == "" || !owned {
		of, _ := x.Get("user") // as supervisor does
		user = of.Value
	}
	if user != "" {
		t.Set("user", user)
	}
	if group != "" {
		t.Set("group", group)
	}
}

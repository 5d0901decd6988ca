package unit

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
)

// service is a service while it is converted.
type service struct {
	*draft.Block
	unit     *file
	commands []invocation
	before   []invocation // ExecStartPre
	files    []string     // EnvironmentFile
	stdin    bool         // is the socket
	codes    []int        // SuccessExitStatus

	container container
}

// invocation is a command of a unit.
type invocation struct {
	source.Setting
	words      []string
	ignore     bool // a failure does not matter
	privileged bool // it runs as root
}

// convert converts the service, whose sockets come from these units.
func (f *file) convert(sockets []*file) {
	section, isContainer := cmp.Or(f.ByName["Container"], f.ByName["Service"]), f.ByName["Container"] != nil
	if section == nil {
		f.Wrong(source.Setting{At: source.Location{File: f.Draft.Name}}, "has no [Service]",
			"name a service or a socket: systemd's other units start no program")
		return
	}
	title := cmp.Or(f.Program, strings.Trim(f.prefix+"-"+f.instance, "-"))
	x := &service{Block: f.NewProgram(section.Setting, title), unit: f}
	x.Fill = func(s source.Setting) (source.Setting, bool) { return f.specifiers(x.Block, s) }
	x.sections(sockets)
	if isContainer && len(f.Draft.Problems) == 0 {
		x.inImage(section.Setting)
	}
	if len(x.commands) == 0 {
		if len(f.Draft.Problems) == 0 {
			f.Wrong(section.Setting, "has no ExecStart", "write ExecStart=…")
		}
		return
	}
	x.command()
	for _, s := range sockets {
		x.listeners(s)
	}
	if x.stdin && len(x.Listen) > 0 {
		x.Listen[0].Set("fd", 0)
	}
	x.finish(section)
}

// sections converts each section but that of a socket.
func (x *service) sections(sockets []*file) {
	known := x.rules()
	for _, s := range x.unit.Sections {
		switch s.Name {
		case "Service":
			x.Each(s, known, x.otherwise)
		case "Unit":
			x.Each(s, ofUnit(sockets...), draft.None("it orders units of systemd"))
		case "Install":
			x.Each(s, draft.Rules{}, draft.Unneeded("the unit of supervisord is started at boot, and starts every program"))
		case "Container":
			x.Each(s, x.ofContainer(), x.otherwise)
		case "Socket":
		default:
			x.Lacks(s.Setting, "systemd ignores it too")
		}
	}
}

// otherwise is for keys without a rule of their own.
func (x *service) otherwise(p *draft.Block, s source.Setting) {
	limit, isLimit := strings.CutPrefix(s.Key, "Limit")
	limit = strings.ToLower(limit)
	rule, known := draft.Notes(keys, "any").For(s.Key)
	switch {
	case isLimit && slices.Contains(resources, limit):
		draft.To(draft.Limit(limit), asLimit)(p, s)
	case known:
		rule(p, s)
	default:
		p.Lacks(s, "only systemd has it")
	}
}

// exec reads a command with its prefixes into a list.
func (x *service) exec(into *[]invocation) draft.Rule {
	return func(p *draft.Block, s source.Setting) {
		if s.Value == "" {
			p.Note("", s, "removes those before it")
			return
		}
		bare := s.Value
		if s.Key != "Exec" && s.Key != "Entrypoint" { // a container's have no prefixes
			bare = strings.TrimLeft(s.Value, "@-:+!|")
		}
		prefixes := s.Value[:len(s.Value)-len(bare)]
		words, err := split(bare)
		if err != nil {
			p.Wrong(s, err.Error(), "fix the command")
			return
		}
		in := invocation{Setting: s, ignore: strings.Contains(prefixes, "-")}
		for _, w := range words {
			word, ok := x.word(p, s, w)
			if !ok {
				p.Wrong(s, "has a word that is not UTF-8", "write it in UTF-8")
				return
			}
			if !strings.Contains(prefixes, ":") {
				word = expanded(word)
			}
			in.words = append(in.words, word)
		}
		x.prefixes(p, &in, prefixes)
		if len(in.words) == 0 || in.words[0] == "" {
			p.Wrong(s, "is empty", "write the program and its arguments")
			return
		}
		*into = append(*into, in)
	}
}

// word returns a word of a command with its specifiers expanded. It reports whether the word is UTF-8. A word that only
// systemd knows comments the program out.
func (x *service) word(p *draft.Block, s source.Setting, w string) (string, bool) {
	s.Value = w
	filled, ok := x.unit.specifiers(p, s)
	if !ok {
		p.Off = true
		return w, true
	}
	return filled.Value, utf8.ValidString(filled.Value)
}

// prefixes converts what stands before a command.
func (x *service) prefixes(p *draft.Block, in *invocation, prefixes string) {
	if strings.Contains(prefixes, "@") && len(in.words) > 1 {
		p.Lacks(in.Setting, "the program sees its own path as its name; bash -c 'exec -a NAME …' shows another")
		in.words = slices.Delete(in.words, 1, 2)
	}
	if strings.ContainsAny(prefixes, "+!") {
		in.privileged = true
		p.Lacks(in.Setting, "a command cannot have more privileges than the program: run it before, or without user")
	}
	if strings.Contains(prefixes, "|") {
		p.Lacks(in.Setting, "no login shell runs it: write command = [\"sh\", \"-lc\", \"…\"]")
	}
}

// command sets the command from ExecStart.
func (x *service) command() {
	in := x.commands[len(x.commands)-1]
	x.Run.Words = in.words
	if len(x.commands) > 1 {
		x.Run.Words, x.Run.Script = nil, joined(x.commands)
	}
	if in.ignore {
		x.Lacks(in.Setting, "restart.when looks at the status of the program itself")
	}
	x.Argv() // finish sets it again
}

// joined returns commands as one script.
func joined(list []invocation) string {
	var parts []string
	for _, in := range list {
		line := shell.Line(in.words)
		if in.ignore {
			line = "{ " + line + " || true; }"
		}
		parts = append(parts, line)
	}
	return strings.Join(parts, " && ")
}

// finish sets what depends on several keys, and what systemd does without any.
func (x *service) finish(section *source.Section) {
	in := x.commands[0].Setting
	if x.Value("directory") == "" && x.Run.Dir == "" {
		x.Set("directory", "/")
	}
	if x.Value("user") != "" { // what needs more fails as that user
		x.before = slices.DeleteFunc(x.before, func(in invocation) bool { return in.privileged })
	}
	if len(x.before) == 1 && !x.before[0].ignore {
		x.Set("reload.preflight", shell.Invocation{Words: x.before[0].words}.Argv())
	} else if len(x.before) > 0 {
		x.Set("reload.preflight", shell.Invocation{Script: joined(x.before)}.Argv())
	}
	if strings.HasPrefix(x.Given["Type"].Value, "notify") {
		x.Set("ready.method", "notify")
	}
	known := x.Serve(in, x.container.published...)
	x.kind(in, known && len(x.Listen) > 0)
	if x.Value("ready.method") == "" {
		x.Note("ready", in, "systemd does not wait for it: "+draft.AliveFor)
		x.ReadyAfter(in, 1)
	}
	x.timeouts(in)
	x.Argv()
	if mode := x.Given["KillMode"].Value; (mode == "" || mode == "control-group") && !known {
		x.Set("stop.group", true)
	}
	x.RestartAfterFailure(source.Setting{At: section.At, Text: "[Service]"}, "without Restart=, systemd")
}

// kind converts what Type says about a program that does not stay.
func (x *service) kind(in source.Setting, foreground bool) {
	s := x.Given["Type"]
	switch {
	case s.Value == "oneshot":
		x.Off = true
		x.Lacks(s, "a command that ends is not a program to supervise: leave it to systemd")
	case s.Value == "forking" && foreground:
		x.Note("", s, "not needed: the command runs in the foreground now")
	case s.Value == "forking":
		x.Off = true
		x.Lacks(s, "supervisord starts programs in the foreground: find the option of "+in.String()+
			" that keeps it there, often --foreground or --nodaemon, then remove the # of these lines")
	case s.Value == "dbus":
		x.Lacks(s, "supervisord does not look at the bus")
	case s.Key != "":
		x.Note("", s, map[bool]string{true: "the program reports READY=1 itself",
			false: "the default"}[strings.HasPrefix(s.Value, "notify")])
	}
}

// timeouts sets what systemd waits for.
func (x *service) timeouts(in source.Setting) {
	const usual = 90 // seconds, DefaultTimeoutStartSec and DefaultTimeoutStopSec
	if x.Value("ready.method") == `"notify"` && x.Value("ready.timeout") == "" {
		x.Set("ready.timeout", "90s")
	}
	if x.Value("stop.timeout") == "" {
		if value, ok := x.Duration("stop.timeout", in, usual, 0); ok {
			x.Set("stop.timeout", value)
		}
	}
}

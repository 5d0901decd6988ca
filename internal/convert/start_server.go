package convert

import (
	"errors"
	"strings"

	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/starter"
)

// startServer converts a command line of start_server. Package starter translates it, as for the start_server command.
func (d *document) startServer() {
	c, ok := d.commandLine()
	if !ok {
		return
	}
	line, err := starter.Parse(c.words[1:])
	if mistake, ok := errors.AsType[*getopt.Error](err); ok {
		d.wrong(setting{at: c.at[1+mistake.Word], key: c.words[1+mistake.Word]}, mistake.What, "see supervisord start_server --help")
		return
	}
	for _, g := range line.Given {
		switch g.Name {
		case "restart", "stop", "help", "version":
			d.wrong(fromOption(c, g), "starts nothing", "use supervisord reload, or supervisord stop NAME")
			return
		}
	}
	first := len(c.words)
	if line.Command != nil {
		first = 1 + line.First
	}
	p := d.begin(c, first)
	if p == nil {
		return
	}
	o := &starter.Options{Given: line.Given, Command: line.Command, WorkDir: d.Dir, Getenv: c.getenv, Later: true}
	if c.dir != nil {
		o.WorkDir = d.path(c.dir.value)
	}
	p.translated(c, o)
}

// getenv returns a variable that the script sets for start_server.
func (c commandLine) getenv(name string) string {
	value := ""
	for _, s := range c.environment {
		if s.key == name {
			value = s.value
		}
	}
	return value
}

// translated writes the translation of a command line.
func (p *program) translated(c commandLine, o *starter.Options) {
	if _, err := o.Load(); err != nil {
		p.starterMistakes(c, err)
		return
	}
	t, err := o.Translate()
	if err != nil {
		p.starterMistakes(c, err)
		return
	}
	if t.PIDFile != "" {
		p.head.set("supervisor.pid_file", t.PIDFile)
	}
	p.run.words = o.Command
	p.argv()
	for _, v := range c.environment {
		p.environment(v, v.key, v.value)
	}
	for _, s := range t.Settings {
		if s.Key != "command" {
			p.explained(c, s)
			p.set(s.Key, raw(s.Value))
		}
	}
	for _, settings := range t.Listen {
		l := &table{document: p.document}
		for _, s := range settings {
			l.set(s.Key, raw(s.Value))
		}
		p.listen = append(p.listen, l)
	}
	p.notTranslated(c, o)
}

// explained adds a comment to a setting that needs one.
func (p *program) explained(c commandLine, s starter.Setting) {
	table, _, _ := strings.Cut(s.Key, ".")
	switch comment := map[string]string{
		"dialect":         "The worker gets the variables of start_server only; without this line it gets LISTEN_FDS too.",
		"reload.retry":    "start_server retries until a new worker lives. Without this line a failed reload ends, and `supervisord reload` reports it.",
		"stop.int_signal": "start_server passes INT on as TERM.",
	}[s.Key]; {
	case comment != "":
		p.table(strings.TrimSuffix(table, "dialect")).comment(comment)
	case s.Key == "ready.delay":
		p.table(table).comment(strings.ToUpper(aliveFor[:1]) + aliveFor[1:] + ".")
	case s.Key == "stop.timeout" && s.From.Value == "":
		p.waitsForever()
	case s.Key == "directory" && s.From.Value == "" && c.dir == nil:
		p.table("").comment("start_server runs it in the directory where it was started, which is assumed to be this one.")
	}
}

// notTranslated converts the options that the start_server command implements itself.
func (p *program) notTranslated(c commandLine, o *starter.Options) {
	for _, g := range o.Given {
		s := fromOption(c, g)
		command, piped := strings.CutPrefix(strings.TrimSpace(g.Value), "|")
		switch {
		case g.Name == "log-file" && piped:
			p.lacks(s, "pipe the log of supervisord itself: supervisord run 2>&1 | "+strings.TrimSpace(command))
		case g.Name == "log-file":
			p.note("", s, "the program's output; supervisord's own log goes to its stderr")
			path := joinPath(o.WorkDir, g.Value)
			p.set("stdout", path)
			p.set("stderr", path)
		case g.Name == "daemonize":
			p.lacks(s, foreground)
		case g.Name == "timeout":
			p.lacks(s, "it is for --restart and --stop: use supervisord reload --timeout")
		}
	}
}

// starterMistakes reports what package starter rejects, at the options' positions.
func (p *program) starterMistakes(c commandLine, err error) {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, err := range list {
		e, ok := errors.AsType[*starter.OptionError](err)
		if !ok || e.Option.Name == "" {
			p.wrong(setting{at: c.at[0]}, err.Error(), "")
			continue
		}
		p.wrong(fromOption(c, e.Option), e.What, e.Remedy)
	}
}

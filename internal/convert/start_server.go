package convert

import (
	"errors"
	"slices"
	"strings"

	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/starter"
)

// startServer converts a command line of start_server. Package starter translates it, as for the start_server command.
func (d *draft) startServer() {
	c, ok := d.commandLine()
	if !ok {
		return
	}
	line, err := starter.Parse(c.words[1:])
	if mistake, ok := errors.AsType[*getopt.Mistake](err); ok {
		d.wrong(setting{at: c.at[1+mistake.Word], key: c.words[1+mistake.Word]}, mistake.What, "see supervisord start_server --help")
		return
	}
	for _, g := range line.Given {
		if slices.Contains([]string{"restart", "stop", "help", "version"}, g.Name) {
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
	t, err := o.Translate()
	if err == nil {
		_, err = o.Load() // checks it
	}
	if err != nil {
		p.starterMistakes(c, err)
		return
	}
	p.translated(c, o, t)
}

// getenv returns a variable that the script sets for start_server.
func (c commandLine) getenv(name string) string {
	for _, s := range slices.Backward(c.environment) {
		if s.key == name {
			return s.value
		}
	}
	return ""
}

// translated writes the translation of a command line.
func (p *program) translated(c commandLine, o *starter.Options, t *starter.Translation) {
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
		l := &table{}
		for _, s := range settings {
			l.set(s.Key, raw(s.Value))
		}
		p.listen = append(p.listen, l)
	}
	for _, g := range o.Given {
		p.notTranslated(fromOption(c, g), o.WorkDir)
	}
}

// explained adds a comment to a setting that needs one.
func (p *program) explained(c commandLine, s starter.Assignment) {
	t, _ := p.in(s.Key)
	switch s.Key {
	case "dialect":
		t.comment("The worker gets the variables of start_server only; without this line it gets LISTEN_FDS too.")
	case "reload.retry":
		t.comment("start_server retries until a new worker lives. Without this line a failed reload ends, and `supervisord reload` reports it.")
	case "stop.int_signal":
		t.comment("start_server passes INT on as TERM.")
	case "ready.delay":
		t.comment(strings.ToUpper(aliveFor[:1]) + aliveFor[1:] + ".")
	case "stop.timeout":
		if s.From.Value == "" {
			p.waitsForever()
		}
	case "directory":
		if s.From.Value == "" && c.dir == nil {
			t.comment("start_server runs it in the directory where it was started, which is assumed to be this one.")
		}
	}
}

// notTranslated converts an option that the start_server command implements itself.
func (p *program) notTranslated(s setting, dir string) {
	command, piped := strings.CutPrefix(strings.TrimSpace(s.value), "|")
	switch {
	case s.key == "log-file" && piped:
		p.lacks(s, "pipe the log of supervisord itself: supervisord run 2>&1 | "+strings.TrimSpace(command))
	case s.key == "log-file":
		p.note("", s, "the program's output; supervisord's own log goes to its stderr")
		p.set("stdout", joinPath(dir, s.value))
		p.set("stderr", joinPath(dir, s.value))
	case s.key == "daemonize":
		p.lacks(s, foreground)
	case s.key == "timeout":
		p.lacks(s, "it is for --restart and --stop: use supervisord reload --timeout")
	}
}

// starterMistakes reports what package starter rejects, at the options' positions.
func (p *program) starterMistakes(c commandLine, err error) {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, err := range list {
		if e, ok := errors.AsType[*starter.OptionError](err); ok && e.Option.Name != "" {
			p.wrong(fromOption(c, e.Option), e.What, e.Remedy)
		} else {
			p.wrong(setting{at: c.at[0]}, err.Error(), "")
		}
	}
}

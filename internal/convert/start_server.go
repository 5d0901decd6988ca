package convert

import (
	"errors"
	"slices"
	"strings"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/starter"
)

// starterLine is a command line of start_server while it is converted.
type starterLine struct {
	*draft.Block
	line commandLine
}

// startServer converts a command line of start_server. Package starter translates it, as for the start_server command.
func (d *conversion) startServer() {
	c, ok := d.commandLine()
	if !ok {
		return
	}
	line, err := starter.Parse(c.words[1:])
	if mistake, ok := errors.AsType[*getopt.Mistake](err); ok {
		d.Wrong(source.Setting{At: c.at[1+mistake.Word], Key: c.words[1+mistake.Word]}, mistake.What,
			"see supervisord start_server --help")
		return
	}
	for _, g := range line.Given {
		if slices.Contains([]string{"restart", "stop", "help", "version"}, g.Name) {
			d.Wrong(fromOption(c, g), "starts nothing", "use supervisord reload, or supervisord stop NAME")
			return
		}
	}
	first := len(c.words)
	if line.Command != nil {
		first = 1 + line.First
	}
	p := &starterLine{Block: d.begin(c, first), line: c}
	if p.Block == nil {
		return
	}
	o := &starter.Arguments{Given: line.Given, Command: line.Command, WorkDir: d.Dir, Getenv: c.getenv, Later: true}
	if c.dir != nil {
		o.WorkDir = d.Path(c.dir.Value)
	}
	t, err := o.Translate()
	if err == nil {
		_, err = o.Load() // checks it
	}
	if err != nil {
		p.mistakes(err)
		return
	}
	p.translated(o, t)
}

// getenv returns a variable that the script sets for start_server.
func (c commandLine) getenv(name string) string {
	for _, s := range slices.Backward(c.environment) {
		if s.Key == name {
			return s.Value
		}
	}
	return ""
}

// translated writes the translation of a command line.
func (p *starterLine) translated(o *starter.Arguments, t *starter.Translation) {
	if t.PIDFile != "" {
		p.Head.Set("supervisor.pid_file", t.PIDFile)
	}
	p.Run.Words = o.Command
	p.Argv()
	for _, v := range p.line.environment {
		p.Environment(v, v.Key, v.Value)
	}
	for _, s := range t.Settings {
		if s.Key != "command" {
			p.explained(s)
			p.Set(s.Key, draft.Raw(s.Value))
		}
	}
	for i, settings := range t.Listen {
		l := &draft.TOMLTable{}
		for _, s := range settings {
			if s.Key == "handover" && s.From.Name == "" && i == 0 {
				l.Comment("Old and new workers of start_server accept from one socket while they overlap. Without this line new " +
					"connections go to the new ones only.")
			}
			l.Set(s.Key, draft.Raw(s.Value))
		}
		p.Listen = append(p.Listen, l)
	}
	for _, g := range o.Given {
		p.notTranslated(fromOption(p.line, g), o.WorkDir)
	}
	p.Inherits(source.Setting{At: p.line.at[0]})
	p.Argv()
}

// explained adds a comment to a setting that needs one.
func (p *starterLine) explained(s starter.Assignment) {
	t, _ := p.In(s.Key)
	switch s.Key {
	case "dialect":
		t.Comment("The worker gets the variables of start_server only; without this line it gets LISTEN_FDS too.")
	case "compat.retry":
		t.Comment("start_server retries until a new worker lives. Without this line a failed reload ends, and " +
			"`supervisord reload` reports it.")
	case "compat.int_signal":
		t.Comment("start_server passes INT on as TERM.")
	case "ready.delay":
		t.Comment(strings.ToUpper(draft.AliveFor[:1]) + draft.AliveFor[1:] + ".")
	case "stop.timeout":
		if s.From.Value == "" {
			p.WaitsForever()
		}
	case "directory":
		if s.From.Value == "" && p.line.dir == nil {
			t.Comment("start_server runs it in the directory where it was started, which is assumed to be this one.")
		}
	}
}

// notTranslated converts an option that the start_server command implements itself.
func (p *starterLine) notTranslated(s source.Setting, dir string) {
	command, piped := strings.CutPrefix(strings.TrimSpace(s.Value), "|")
	switch {
	case s.Key == "log-file" && piped:
		p.Lacks(s, "pipe the log of supervisord itself: supervisord run 2>&1 | "+strings.TrimSpace(command))
	case s.Key == "log-file":
		p.Note("", s, "the program's output; supervisord's own log goes to its stderr")
		p.Set("stdout", draft.JoinPath(dir, s.Value))
		p.Set("stderr", draft.JoinPath(dir, s.Value))
	case s.Key == "daemonize":
		p.Lacks(s, foreground)
	case s.Key == "timeout":
		p.Lacks(s, "it is for --restart and --stop: use supervisord reload --timeout")
	}
}

// mistakes reports what package starter rejects, at the options' positions.
func (p *starterLine) mistakes(err error) {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, err := range list {
		if e, ok := errors.AsType[*starter.OptionError](err); ok && e.Option.Name != "" {
			p.Wrong(fromOption(p.line, e.Option), e.What, e.Remedy)
		} else {
			p.Wrong(source.Setting{At: p.line.at[0]}, err.Error(), "")
		}
	}
}

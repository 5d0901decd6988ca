package draft

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/internal/servers"
)

// Serve sets how a reload replaces the program, whose command is Run.Words, if package servers knows its server: with overlap where the server can
// inherit its sockets, otherwise after it has stopped. published are addresses at which clients come according to the source, which hold instead
// of the command's. It reports whether the server is known.
func (p *Target) Serve(s source.Setting, published ...string) bool {
	defer p.staysInForeground(s)
	if servers.Works(p.Run.Words) {
		if servers.Schedules(p.Run.Words) {
			p.Note("reload", s, "two schedulers at the same time would start each job twice")
			p.Set("reload.strategy", "stop-first")
		}
		return true
	}
	server, known := servers.Recognize(p.Run.Words)
	if !known {
		return false
	}
	s.Text = server.Name
	switch {
	case len(p.Listen) > 0:
		p.explain(s, server)
	case p.inherits(s, server, published):
	case server.Inherits():
		p.ownPort(s, server, published)
	default:
		p.Note("reload", s, "the old worker must exit before the new one opens its port, and a reload loses requests: "+server.Remedy+" ("+server.Page+")")
		p.Set("reload.strategy", "stop-first")
	}
	return true
}

// daemonizes are the options by which programs go into the background.
var daemonizes = []string{"--daemon", "--daemonize", "--daemonise", "--background", "--detach", "--fork", "-daemon", "--daemon=true", "--daemon=yes", "--daemon=on",
	"--daemon=1", "--daemonize=true", "--daemonize=yes", "--daemonize=1"}

// staysInForeground says that a command must not go into the background, where supervisord would take it for one that has exited.
func (p *Target) staysInForeground(s source.Setting) {
	for i, word := range p.Run.Words {
		if i > 0 && slices.Contains(daemonizes, word) {
			s.Text = word
			p.Lacks(s, "supervisord starts programs in the foreground, and takes one that goes into the background for one that has exited: remove "+word)
		}
		if word == "--" {
			return
		}
	}
}

// StopFirst sets that a program exits before the next one starts, because it may open a port itself.
func (p *Target) StopFirst() {
	p.Say("A program that opens its port itself must exit before the next one can open it: strategy = \"stop-first\". Give it a listener\n" +
		"([[program.NAME.listen]]), let it take the socket from LISTEN_FDS, and remove that line: then a reload loses no request.")
	p.Set("reload.strategy", "stop-first")
}

// explain says how the server of a program that has listeners already is replaced without losing a request.
func (p *Target) explain(s source.Setting, server *servers.Server) {
	trimmed, want := server.Trim(p.Run.Words, servers.World{Stop: p.stopWithin()})
	p.Run.Words = trimmed
	for _, set := range server.Settings {
		if set.Key == "stop.signal" && p.Value(set.Key) != set.Value {
			want = append(want, "it stops gracefully by "+set.Key+" = "+set.Value)
		}
	}
	for _, text := range []string{server.Manual, server.Remedy} {
		if text != "" {
			want = append(want, text)
		}
	}
	if want != nil {
		p.Note("", s, strings.Join(want, "; ")+" ("+server.Page+")")
	}
}

// inherits gives a known server listeners at the addresses that its command names.
func (p *Target) inherits(s source.Setting, server *servers.Server, published []string) bool {
	w := servers.World{Getenv: p.variable, Glob: p.Glob, Read: func(path string) (string, error) { return p.Read(p.below(path)) }, Stop: p.stopWithin()}
	c := server.Adapt(p.Run.Words, w)
	if len(c.Listen) == 0 {
		c = server.Adapt(p.resolved(p.Run.Words), w)
	}
	dynamic := func(w string) bool { return shell.Dynamic(w) && strings.Contains(w, "exec") }
	if len(c.Listen) == 0 || slices.ContainsFunc(c.Argv, dynamic) || len(published) > 0 && len(published) != len(c.Listen) {
		return false
	}
	for i := range c.Listen {
		if len(published) > 0 && !strings.HasPrefix(c.Listen[i].Address, "unix:") {
			c.Listen[i].Address = published[i]
		}
		if path, ok := strings.CutPrefix(c.Listen[i].Address, "unix:"); ok {
			c.Listen[i].Address = "unix:" + p.below(path)
		}
		t := p.Listener(s, c.Listen[i].Name, c.Listen[i].Address)
		if t == nil {
			p.Listen = nil
			return false
		}
		t.AnybodyMayConnect()
		for _, set := range server.Listener {
			t.Set(set.Key, Raw(set.Value))
		}
	}
	p.Note("", s, "it inherits its socket, so a reload loses no request ("+server.Page+")")
	for _, note := range c.Notes {
		p.Note("", s, note)
	}
	if server.Remedy != "" {
		p.Note("", s, "to do: "+server.Remedy)
	}
	p.Run.Words = nil
	for _, w := range c.Argv {
		for _, l := range c.Listen {
			w = strings.ReplaceAll(w, shell.Placeholder+l.Name+"}", shell.Part(shell.Descriptor, l.Name))
		}
		p.Run.Words = append(p.Run.Words, w)
	}
	if c.Workers > 1 && p.Value("workers") == "" {
		p.Set("workers", c.Workers)
	}
	if server.Variable != nil {
		name, value := server.Variable(c.Listen)
		p.Set("environment."+name, value)
	}
	p.settings(s, server)
	return true
}

// settings sets what the server needs, also instead of what the source says.
func (p *Target) settings(s source.Setting, server *servers.Server) {
	delete(p.Tables, "ready")
	if p.Value("stop.group") == "true" {
		p.Note("stop", s, "the signal goes to the server alone, which stops its own processes")
		p.Set("stop.group", false)
	}
	signal := Raw(`"TERM"`)
	for _, set := range server.Settings {
		switch set.Key {
		case "stop.signal":
			signal = Raw(set.Value)
		case "stop.timeout":
			p.Otherwise(set.Key, Raw(set.Value))
			if own, recommended := duration(p.Value(set.Key)), duration(set.Value); own > 0 && own < recommended {
				p.Note("stop", s, fmt.Sprintf("requests that take longer than %v are cut off: %v is usual for it", own, recommended))
			}
		default:
			p.Set(set.Key, Raw(set.Value))
		}
	}
	if own := p.Value("stop.signal"); own != string(signal) && (own != "" || signal != `"TERM"`) {
		if own != "" {
			p.Note("stop", s, fmt.Sprintf("it stops gracefully on %s, not on %s", strings.Trim(string(signal), `"`), strings.Trim(own, `"`)))
		}
		p.Set("stop.signal", signal)
	}
}

// stopWithin returns stop.timeout as far as the source says it; negative: infinity, 0: the source does not say it.
func (p *Target) stopWithin() time.Duration {
	if p.Value("stop.timeout") == `"infinity"` {
		return -1
	}
	return duration(p.Value("stop.timeout"))
}

// duration reads a value in TOML; 0: it is not a duration, or infinity.
func duration(value string) time.Duration {
	d, _ := time.ParseDuration(strings.Trim(value, `"`))
	return d
}

// ownPort says what to do for a server that could inherit its socket, but whose own files or code must be changed first.
func (p *Target) ownPort(s source.Setting, server *servers.Server, published []string) {
	var listen []servers.Listen
	for i, address := range published {
		listen = append(listen, servers.Listen{Name: "http" + strings.TrimSuffix(strconv.Itoa(i+1), "1"), Address: address})
	}
	if port := p.variable("PORT"); len(listen) == 0 && port != "" {
		listen = []servers.Listen{{Name: "http", Address: "0.0.0.0:" + port}}
	}
	first := server.Manual
	if first == "" {
		first = "write its addresses below: neither the command nor its own file says them in a way that is known before the start"
	}
	if words := server.Needs(); words != nil {
		first += "; replace the address in the command by " + strings.Join(words, " ")
	}
	text := "the old worker must exit before the new one opens its port, and a reload loses requests. To lose none:\n1. " + first + ".\n"
	next := 2
	if server.Remedy != "" {
		text += fmt.Sprintf("%d. %s.\n", next, server.Remedy)
		next++
	}
	text += fmt.Sprintf("%d. Remove the line with strategy, ready and stop as they are now, and write (%s):\n   ", next, server.Page)
	lines := strings.TrimSuffix(server.Lines(p.ProgramName, listen), "\n")
	p.Note("reload", s, text+strings.ReplaceAll(lines, "\n", "\n   "))
	p.Set("reload.strategy", "stop-first")
}

// variable returns a variable that the source sets for the program, "" if it does not.
func (p *Target) variable(name string) string {
	value, _ := strconv.Unquote(p.Table("environment").Value(name))
	return value
}

// ofAddress matches a variable of a shell that is part of an address, and its default.
var ofAddress = pattern.Lazy(`^[uq]\$\{?(\w*(?:PORT|HOST|BIND|ADDR|LISTEN|SOCK)\w*)(?::?-(\w*))?\}?$`)

// resolved returns words with the variables of addresses that the source sets.
func (p *Target) resolved(words []string) []string {
	var all []string
	for _, w := range words {
		list := shell.Parts(w)
		for i := 1; i < len(list); i += 2 {
			m := ofAddress().FindStringSubmatch(list[i])
			if value := ""; m != nil {
				if value = cmp.Or(p.variable(m[1]), m[2]); value != "" {
					list[i] = value
					continue
				}
			}
			list[i] = "\x00" + list[i] + "\x00"
		}
		all = append(all, strings.Join(list, ""))
	}
	return all
}

// below resolves a path from the program's directory.
func (p *Target) below(path string) string {
	dir, err := strconv.Unquote(p.Value("directory"))
	if err != nil {
		dir = p.Dir
	}
	return filepath.Clean(JoinPath(dir, path))
}

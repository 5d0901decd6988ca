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

// Published is an address at which clients come according to the source, and the port that the program opens for it.
type Published struct{ Address, Port string }

// Serve gives the program, whose command is Run, its listeners, and says how a reload replaces it. The command stays as
// it is: the program opens its ports as always. Where nobody knows which, the old worker stops first. Serve reports
// whether package servers knows the program.
func (p *Block) Serve(s source.Setting, published ...Published) bool {
	defer p.shellStays(s)
	defer p.staysInForeground(s)
	c := p.reads()
	server := c.Server
	if server != nil {
		s.Text = server.Name
	}
	switch {
	case servers.Works(p.Words()):
		if servers.Schedules(p.Words()) {
			p.single(s, "two schedulers at the same time would start each job twice")
		}
		return true
	case len(p.Listen) > 0:
		p.trimmed(s, c)
	default:
		p.changed(s, c.Argv, c.Changes)
		p.opens(s, c, published)
		p.inPlace(s, c)
	}
	if server != nil && server.Single != "" {
		p.single(s, server.Single)
	}
	if len(p.Listen) > 0 {
		p.settings(s, c)
	} else if p.Value("reload.strategy") == "" {
		p.StopFirst()
	}
	if server != nil && server.Advice != "" {
		p.Note("", s, "to do: "+server.Advice+" ("+server.Page+")")
	}
	return server != nil
}

// Words returns the words of the command: its own, or those of a shell.
func (p *Block) Words() []string {
	if p.Run.Script != "" {
		return []string{"sh", "-c", p.Run.Script}
	}
	return p.Run.Words
}

// single sets that the program runs only once. While it is replaced, clients of a listener wait.
func (p *Block) single(s source.Setting, why string) {
	p.Note("reload", s, why)
	p.Set("reload.strategy", "stop-first")
}

// StopFirst sets that a program exits before the next one starts, because nobody knows which ports it opens, if any.
func (p *Block) StopFirst() {
	p.Say("strategy = \"stop-first\": the source does not say which port the program opens, and two programs cannot " +
		"open one port. If it opens none, remove\n" +
		"that line; otherwise write its port, as listen = [\"0.0.0.0:8080\"], and remove the line: then a reload loses no " +
		"request.")
	p.Set("reload.strategy", "stop-first")
}

// reads returns what the command says, with the variables and files of the program.
func (p *Block) reads() servers.CommandLine {
	w := servers.Surroundings{Getenv: p.variable, Glob: p.Glob,
		Read: func(path string) (string, error) { return p.Read(p.below(path)) }}
	c := servers.Read(p.Words(), w)
	if len(c.Listen) == 0 {
		resolved := servers.Read(p.resolved(p.Words()), w)
		c.Listen, c.From = resolved.Listen, resolved.From
	}
	return c
}

// changed sets the command, and says how it differs from the source's.
func (p *Block) changed(s source.Setting, argv, changes []string) {
	for _, note := range changes {
		p.Note("", s, shell.Show(note))
	}
	if p.Run.Script != "" {
		return
	}
	old := p.Run.Words
	p.Run.Words = nil
	for _, w := range argv {
		for !slices.Contains(old, w) {
			before, rest, found := strings.Cut(w, shell.Placeholder)
			name, after, closed := strings.Cut(rest, "}")
			if !found || !closed {
				break
			}
			w = before + shell.Part(shell.Descriptor, name) + after
		}
		p.Run.Words = append(p.Run.Words, w)
	}
}

// trimmed keeps the command of a program that inherits its listeners, without addresses that it does not open.
func (p *Block) trimmed(s source.Setting, c servers.CommandLine) {
	argv, changes := c.Trim()
	p.changed(s, argv, changes)
}

// Inherits is Serve for a program whose own supervisor gave it sockets, and whose other settings are to stay as they
// are.
func (p *Block) Inherits(s source.Setting) {
	c := p.reads()
	p.trimmed(s, c)
	if c.Server == nil {
		return
	}
	s.Text = c.Server.Name
	var want []string
	if signal := strconv.Quote(c.Server.Signal); c.Server.Signal != "" && p.Value("stop.signal") != signal &&
		signal != `"TERM"` {
		want = append(want, "it stops gracefully by stop.signal = "+signal)
	}
	if c.Server.Advice != "" {
		want = append(want, c.Server.Advice)
	}
	if want != nil {
		p.Note("", s, strings.Join(want, "; ")+" ("+c.Server.Page+")")
	}
}

// opens gives the program listeners where it opens its ports. Clients come to published addresses, if there are any.
func (p *Block) opens(s source.Setting, c servers.CommandLine, published []Published) {
	list := slices.Clone(c.Listen)
	for _, at := range published {
		own := ":" + at.Port
		if i := slices.IndexFunc(list, func(l servers.Listen) bool { return strings.HasSuffix(l.Address, own) }); i >= 0 {
			own = cmp.Or(list[i].Binds, list[i].Address)
			list = slices.Delete(list, i, i+1)
		} else if len(c.Listen) > 0 {
			p.Note("", s, at.Address+": nothing says that the program opens port "+at.Port+
				"; if it does not, remove this listener: it is not ready without")
		}
		p.listens(s, at.Address, own)
	}
	for _, l := range list {
		if path, ok := strings.CutPrefix(l.Address, "unix:"); ok {
			l.Address = "unix:" + p.below(path)
		}
		p.listens(s, l.Address, cmp.Or(l.Binds, l.Address))
		if l.Any {
			p.Note("", s, l.Address+": other machines reach it; if they must not, write 127.0.0.1")
		}
	}
	if c.From != "" && len(published) == 0 && len(p.Listen) > 0 {
		p.Note("", s, c.From)
	}
}

// inPlace says how a program that opens its ports gets its listeners.
func (p *Block) inPlace(s source.Setting, c servers.CommandLine) {
	if len(p.Listen) == 0 {
		return
	}
	p.Note("", s, "it opens its port as always, and gets the listener's socket, so a reload loses no request "+
		"(docs/servers.md#servers-that-open-their-own-port)")
	if c.Server != nil && c.Server.Untold != "" {
		p.Note("", s, "no variable tells it about its sockets: "+c.Server.Untold)
		p.Set("dialect", Raw("[]"))
	}
	if p.Ordinary && p.Value("limits.no_new_privileges") != "true" {
		p.Say("bind = \"on\": an ordinary user's supervisord gives programs their sockets only with no_new_privileges, " +
			"which disables sudo below them.\n" +
			"Without root's supervisord the line has to stay.")
		p.Set("bind", "on")
	}
}

// listens adds a listener whose address the program opens as own.
func (p *Block) listens(s source.Setting, address, own string) {
	name := "http" + strings.TrimSuffix(strconv.Itoa(len(p.Listen)+1), "1")
	t := p.Listener(s, name, address)
	if t == nil {
		return
	}
	t.AnybodyMayConnect()
	if address != own && (!fits(address, own) || strings.HasPrefix(own, ":") && !strings.HasPrefix(address, "0.0.0.0:")) {
		t.Set("binds", own)
	}
}

// fits reports whether a program that opens own gets the listener at an address without being told.
func fits(address, own string) bool {
	at, port := cut(address)
	of, opened := cut(own)
	wild := func(host string) bool { return slices.Contains([]string{"", "0.0.0.0", "[::]", "*"}, host) }
	return address == own || port == opened && (at == of || wild(at) || wild(of))
}

func cut(address string) (host, port string) {
	i := strings.LastIndexByte(address, ':')
	return address[:max(i, 0)], address[i+1:]
}

// daemonizes are the options by which programs go into the background.
var daemonizes = []string{"--daemon", "--daemonize", "--daemonise", "--background", "--detach", "--fork", "-daemon",
	"--daemon=true", "--daemon=yes", "--daemon=on",
	"--daemon=1", "--daemonize=true", "--daemonize=yes", "--daemonize=1"}

// staysInForeground says that a command must not go into the background, where supervisord would take it for one that
// has exited.
func (p *Block) staysInForeground(s source.Setting) {
	for i, word := range p.Run.Words {
		if i > 0 && slices.Contains(daemonizes, word) {
			s.Text = word
			p.Lacks(s, "supervisord starts programs in the foreground, and takes one that goes into the background for one "+
				"that has exited: remove "+word)
		}
		if word == "--" {
			return
		}
	}
}

// shellStays lets the signal to stop reach a program behind a shell, which would end alone.
func (p *Block) shellStays(s source.Setting) {
	if shell.Stays(p.Run.Words) && p.Value("stop.group") != "true" {
		p.Note("stop", s, "a shell stays in front of the program: the signal goes to both; write exec before the program")
		p.Set("stop.group", true)
	}
}

// settings sets when the program is ready, and how it stops: what its server needs, also instead of what the source
// says.
func (p *Block) settings(s source.Setting, c servers.CommandLine) {
	if p.Value("ready.method") != `"notify"` {
		timeout := p.Value("ready.timeout")
		delete(p.Tables, "ready")
		if timeout != "" {
			p.Set("ready.timeout", Raw(timeout))
		}
		p.Set("ready.method", "accept")
	}
	if c.Server == nil {
		return
	}
	if p.Value("ready.method") == `"accept"` {
		p.Set("ready.method", c.Server.Ready)
	}
	if c.Server.Group {
		p.Set("stop.group", true)
	} else if p.Value("stop.group") == "true" {
		p.Note("stop", s, "the signal goes to the server alone, which stops its own processes")
		p.Set("stop.group", false)
	}
	own, signal := p.Value("stop.signal"), strconv.Quote(c.Server.Signal)
	if c.Server.Signal != "" && own != signal && (own != "" || signal != `"TERM"`) {
		if own != "" {
			p.Note("stop", s, fmt.Sprintf("it stops gracefully on %s, not on %s", c.Server.Signal, strings.Trim(own, `"`)))
		}
		p.Set("stop.signal", c.Server.Signal)
	}
	const patient, margin = 30 * time.Second, 5 * time.Second
	enough := max(patient, c.Stop+margin)
	switch kill := duration(p.Value("stop.timeout")); {
	case kill > 0 && kill < c.Stop:
		p.Note("stop", s, fmt.Sprintf(
			"it gives its requests %v to end, but KILL comes after %v: requests that take longer are cut off", c.Stop, kill))
	case kill > 0 && kill < patient:
		p.Note("stop", s, fmt.Sprintf("requests that take longer than %v are cut off: %v is usual for it", kill, patient))
	}
	p.Otherwise("stop.timeout", fmt.Sprintf("%ds", int(enough.Seconds())))
}

// duration reads a value in TOML; 0: it is not a duration, or infinity.
func duration(value string) time.Duration {
	d, _ := time.ParseDuration(strings.Trim(value, `"`))
	return d
}

// variable returns a variable that the source sets for the program, also in a file; "" if it does not.
func (p *Block) variable(name string) string {
	if name == "PORT" && p.NoPort {
		return ""
	}
	if value, err := strconv.Unquote(p.Table("environment").Value(name)); err == nil {
		return value
	}
	for _, m := range inList().FindAllStringSubmatch(p.Value("environment_file"), -1) {
		text, _ := p.Read(p.below(strings.TrimPrefix(m[1], "-"))) //nolint:errcheck // then it sets nothing
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "export "), name+"="); ok {
				return strings.Trim(strings.TrimSpace(value), `"'`)
			}
		}
	}
	return ""
}

// inList matches the elements of a list of paths in TOML.
var inList = pattern.Lazy(`"([^"]+)"`)

// ofAddress matches a variable of a shell, and its default.
var ofAddress = pattern.Lazy(`^[uq]\$\{?(\w+)(?::?-([\w.:-]*))?\}?$`)

// resolved returns words with the variables that the source sets.
func (p *Block) resolved(words []string) []string {
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
func (p *Block) below(path string) string {
	dir, err := strconv.Unquote(p.Value("directory"))
	if err != nil {
		dir = p.Dir
	}
	return filepath.Clean(JoinPath(dir, path))
}

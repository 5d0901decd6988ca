package starter

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/socket"
)

// shortestPace is how long supervisord waits before it retries a failed worker where --interval is 0.
const shortestPace = 200 * time.Millisecond

// readyTimeout is added to --interval: a worker that reports its readiness may take that long.
const readyTimeout = time.Minute

// Assignment is one key of a configuration.
type Assignment struct {
	Key   string       // dotted, below [program.NAME] or below a listener: "stop.signal"
	Value string       // in TOML
	From  getopt.Given // the option that it comes from; without a Name: none, it is what start_server always does
}

// Translation is a command line of start_server as a configuration.
type Translation struct {
	PIDFile  string         // of [supervisor]; "": none
	Settings []Assignment   // of [program.NAME], in the order of the documentation
	Listen   [][]Assignment // of its listeners
}

// Translate is the mapping from options to configuration. It does not know --log-file and --daemonize, which the
// command does itself, and does not check values.
func (o *Arguments) Translate() (*Translation, error) {
	u, err := o.tune()
	if err != nil {
		return nil, err
	}
	t := &Translation{PIDFile: o.abs(o.Get("pid-file"))}
	t.put("command", array(o.Command), getopt.Given{})
	t.put("dialect", array([]string{"start_server"}), getopt.Given{})
	t.put("directory", quoted(cmp.Or(o.abs(o.Get("dir")), o.WorkDir)), o.last("dir"))
	if u.dir != "" {
		t.put("environment_file", quoted(u.dir), o.last("envdir"))
	}
	if file := o.abs(o.Get("status-file")); file != "" {
		t.put("compat.status_file", quoted(file), o.last("status-file"))
	}
	for _, name := range []string{envDir, enableAutoRestart, autoRestart, killOldDelay} {
		if value, ok := u.passed[name]; ok {
			t.put("environment."+name, quoted(value), getopt.Given{})
		}
	}
	t.put("limits.ignore_sigpipe", "true", getopt.Given{})
	o.replacement(t, u)
	for _, step := range []func(*Translation) error{o.listeners, o.readiness, o.stop, o.set} {
		if err := step(t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// put sets a key; the last value counts.
func (t *Translation) put(key, value string, from getopt.Given) {
	t.Settings = slices.DeleteFunc(t.Settings, func(s Assignment) bool { return s.Key == key })
	t.Settings = append(t.Settings, Assignment{key, value, from})
}

func quoted(s string) string { return document.Quote(s) }

func array(words []string) string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = document.Quote(w)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// replacement sets how workers come and go.
func (o *Arguments) replacement(t *Translation, u tuning) {
	interval := o.last("interval")
	pace, stable := o.interval(), "0s"
	if pace == 0 {
		pace, stable = shortestPace, "10s"
	}
	t.put("compat.retry", quoted(pace.String()), interval)
	t.put("reload.soak", quoted(u.delay.String()), o.last("kill-old-delay"))
	if u.every > 0 {
		t.put("reload.every", quoted(u.every.String()), o.last("auto-restart-interval"))
	}
	t.put("compat.generation", `"new"`, getopt.Given{})
	t.put("restart.backoff", fmt.Sprintf(`{ min = "%s", max = "%s" }`, pace, pace), interval)
	t.put("restart.stable_after", quoted(stable), interval)
}

// stop sets how workers are stopped.
func (o *Arguments) stop(t *Translation) error {
	timeout := "infinity"
	if o.Has("stop-timeout") {
		d, err := o.Duration("stop-timeout", "")
		if err != nil {
			return err
		}
		timeout = d.String()
	}
	t.put("stop.signal", quoted(cmp.Or(o.Get("signal-on-term"), "TERM")), o.last("signal-on-term"))
	t.put("compat.reload_signal", quoted(cmp.Or(o.Get("signal-on-hup"), "TERM")), o.last("signal-on-hup"))
	t.put("compat.int_signal", `"TERM"`, getopt.Given{})
	t.put("stop.timeout", quoted(timeout), o.last("stop-timeout"))
	t.put("reload.max_draining", "0", getopt.Given{})
	return nil
}

// readiness translates --ready. Without it a worker is ready when it is alive after --interval.
func (o *Arguments) readiness(t *Translation) error {
	interval, ready := o.last("interval"), o.last("ready")
	t.put("ready.timeout", quoted((o.interval() + readyTimeout).String()), interval)
	method, detail, has := strings.Cut(ready.Value, "=")
	if method == "" {
		t.put("ready.method", `"delay"`, interval)
		t.put("ready.delay", quoted(o.interval().String()), interval)
		t.put("ready.accepts", "false", interval)
		return nil
	}
	t.put("ready.method", quoted(method), ready)
	switch method {
	case "http":
		t.put("ready.url", quoted(detail), ready)
	case "tcp":
		t.put("ready.address", quoted(detail), ready)
	case "exec":
		t.put("ready.command", array([]string{"sh", "-c", detail}), ready)
	default:
		if has {
			return &OptionError{ready, method + " takes no value", "write --ready=" + method, true}
		}
		return nil
	}
	if detail == "" {
		return &OptionError{ready, method + " needs a value",
			"write for example --ready=http=http://127.0.0.1:9000/, --ready=tcp=127.0.0.1:9000 or --ready=exec='./check'", true}
	}
	return nil
}

// dotted is a key of TOML that needs no quotes.
var dotted = pattern.Lazy(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// set translates --set, which wins over every other option.
func (o *Arguments) set(t *Translation) error {
	for _, g := range o.All("set") {
		key, value, has := strings.Cut(g.Value, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !has || key == "" || value == "" || strings.ContainsAny(g.Value, "\n\r") || !dotted().MatchString(key) {
			return &OptionError{g, "not a KEY=VALUE", `write for example --set='reload.preflight=["./web", "-t"]'`, true}
		}
		if key == "command" || key == "listen" {
			return &OptionError{g, "the command line itself sets " + key, "remove it", true}
		}
		t.put(key, value, g)
	}
	return nil
}

// listeners translates --port, --path, --backlog and --handover. The socket of a path is always shared.
func (o *Arguments) listeners(t *Translation) error {
	backlog := o.last("backlog")
	handover, err := o.handover()
	if err != nil {
		return err
	}
	for _, g := range o.All("port") {
		p, err := parsePort(g.Value)
		if err != nil {
			return &OptionError{Option: g, What: err.Error()}
		}
		if err := t.listen(g, p, "", backlog, handover); err != nil {
			return err
		}
	}
	ofPath := handover
	if o.Has("port") { // without one the configuration says that a path cannot be steered
		ofPath.Value = quoted(string(socket.Share))
	}
	for _, g := range o.All("path") {
		if strings.ContainsAny(g.Value, ";=") {
			return &OptionError{Option: g, What: "SERVER_STARTER_PORT cannot hold this path",
				Remedy: "use a path without ';' and '='"}
		}
		if err := t.listen(g, port{Address: "unix:" + o.abs(g.Value), Name: g.Value}, "0777", backlog, ofPath); err != nil {
			return err
		}
	}
	return nil
}

// handover translates --handover. By default the generations of a start_server accept from one socket, as under the
// reference.
func (o *Arguments) handover() (Assignment, error) {
	const key = "handover"
	from := o.last(key)
	switch {
	case !o.Has(key):
		return Assignment{Key: key, Value: quoted(string(socket.Share))}, nil
	case from.Value != string(socket.Share) && from.Value != string(socket.Steer):
		return Assignment{}, &OptionError{from, "not known", "write --handover=share or --handover=steer", true}
	case !o.Has("port") && !o.Has("path"):
		return Assignment{}, &OptionError{from, "does nothing without --port or --path", "remove it", true}
	}
	return Assignment{key, quoted(from.Value), from}, nil
}

// listen adds a listener.
func (t *Translation) listen(from getopt.Given, p port, mode string, backlog getopt.Given, handover Assignment) error {
	l := []Assignment{{"address", quoted(p.Address), from}}
	if slices.ContainsFunc(t.Listen, func(other []Assignment) bool { return other[0].Value == l[0].Value }) {
		return &OptionError{Option: from, What: "is given twice", Remedy: "remove one"}
	}
	a, _ := socket.ParseAddress(p.Address) // what is wrong with it, the configuration says
	if name := a.String(); name != "" && p.Name != a.StarterName() {
		t.put(document.Key("compat.starter_names", name), quoted(p.Name), from)
	}
	if p.FD != "" {
		l = append(l, Assignment{"fd", p.FD, from})
	}
	if mode != "" {
		l = append(l, Assignment{"mode", quoted(mode), from})
	}
	l = append(l, handover)
	if backlog.Value != "" && backlog.Value != "0" && !a.IsUDP() {
		l = append(l, Assignment{"backlog", backlog.Value, backlog})
	}
	t.Listen = append(t.Listen, l)
	return nil
}

// text is the configuration that the command itself runs.
func (t *Translation) text() string {
	var b strings.Builder
	b.WriteString("[supervisor]\ncontrol = \"off\"\n")
	if t.PIDFile != "" {
		fmt.Fprintf(&b, "pid_file = %s\n", quoted(t.PIDFile))
	}
	fmt.Fprintf(&b, "\n[program.%s]\n", programName)
	for _, s := range t.Settings {
		if s.Key == "command" {
			s.Value = `["/bin/sh"]` // Load puts in the real one, word for word
		}
		fmt.Fprintf(&b, "%s = %s\n", s.Key, s.Value)
	}
	for _, l := range t.Listen {
		fmt.Fprintf(&b, "\n[[program.%s.listen]]\n", programName)
		for _, s := range l {
			fmt.Fprintf(&b, "%s = %s\n", s.Key, s.Value)
		}
	}
	return b.String()
}

// explain says what is wrong with the options that a rejected configuration comes from, one mistake for each.
func (t *Translation) explain(e *document.Error) error {
	var all []error
	explained := map[getopt.Given]bool{}
	for _, p := range e.Problems {
		from := t.origin(strings.TrimPrefix(p.Key, "program."+programName+"."))
		if from.Name == "" {
			p.What = cmp.Or(p.Key, "the command line") + ": " + p.What
		} else if explained[from] {
			continue
		}
		explained[from] = true
		remedy := strings.ReplaceAll(p.Remedy, `write handover = "steer"`, "write --handover=steer")
		all = append(all, &OptionError{Option: from, What: p.What, Remedy: remedy})
	}
	return errors.Join(all...)
}

// blame makes a warning about a key one about its option.
func (t *Translation) blame(p document.Problem) document.Problem {
	from := t.origin(strings.TrimPrefix(p.Key, "program."+programName+"."))
	if p.File, p.Line = "the command line", 0; from.Name != "" {
		p.Key = from.String()
	}
	return p
}

// origin returns the option that a key, or a part of it, comes from.
func (t *Translation) origin(key string) getopt.Given {
	var i int
	if n, _ := fmt.Sscanf(key, "listen[%d]", &i); n == 1 && i < len(t.Listen) {
		for _, s := range t.Listen[i] {
			if strings.HasSuffix(key, "."+s.Key) {
				return s.From
			}
		}
		return t.Listen[i][0].From
	}
	for end := len(key); end > 0; end = max(strings.LastIndexAny(key[:end], ".["), 0) {
		for _, s := range t.Settings {
			if s.Key == key[:end] {
				return s.From
			}
		}
	}
	return getopt.Given{}
}

// port is what one --port asks for.
type port struct {
	Address string // as supervisord writes it: "0.0.0.0:80", "udp:127.0.0.1:53", "[::1]:80"
	Name    string // its name in SERVER_STARTER_PORT
	FD      string // the descriptor at which the worker wants it; "": any
}

// The two forms of --port. Spaces are allowed where the reference allows them.
var (
	portAlone    = pattern.Lazy(`^\s*(u?)(\d+)(?:\s*=(\d+))?\s*$`)
	portWithHost = pattern.Lazy(`^\s*(?:\[\s*)?([^\]]*?)\s*(?:\]\s*)?:\s*(u?)(\d+)(?:\s*=(\d+))?\s*$`)
)

// parsePort reads a --port. A port alone means every IPv4 address, and no IPv6 address. The u of UDP is not part of the
// name.
func parsePort(spec string) (port, error) {
	host, name := "0.0.0.0", ""
	m := portAlone().FindStringSubmatch(spec)
	if m == nil {
		if m = portWithHost().FindStringSubmatch(spec); m == nil || m[1] == "" {
			return port{}, fmt.Errorf("invalid ``port'' value:%s: write PORT, HOST:PORT or [IPV6]:PORT, "+
				"with u before the port for UDP and =FD after it for a fixed descriptor", spec)
		}
		if host = m[1]; strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		name, m = host+":", m[1:]
	}
	p := port{Address: host + ":" + unpadded(m[2]), Name: name + m[2], FD: unpadded(m[3])}
	if m[1] != "" {
		p.Address = "udp:" + p.Address
	}
	return p, nil
}

// unpadded returns a number without leading zeros.
func unpadded(digits string) string {
	if len(digits) < 2 {
		return digits
	}
	return strings.TrimLeft(digits[:len(digits)-1], "0") + digits[len(digits)-1:]
}

package apps

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/pattern"
)

// project is a file of Docker Compose.
type project struct {
	*draft.Draft
	variables map[string]string // of .env
	names     []string          // of all services
	services  []*composed
}

// composed is a service while it is converted.
type composed struct {
	*draft.Block
	project   *project
	node      *source.Node
	published []draft.Published
	udp       []source.Setting
	mapped    []string // ":8000", ":8080": the port in the container and here, by turns
	files     []string
	health    []string // the command of the health check
	needs     []source.Setting
}

// Compose converts the services of a file of Docker Compose.
func Compose(d *draft.Draft) {
	root, problem := source.ReadYAML(d.Name, source.Normalize(d.Text))
	if problem != nil {
		d.Problems = append(d.Problems, *problem)
		return
	}
	c := &project{Draft: d, variables: map[string]string{}}
	c.readVariables()
	services := root.Get("services")
	if services == nil || services.Kind != source.Map {
		d.Wrong(source.Setting{At: source.Location{File: d.Name, Line: 1}}, "has no services",
			"name a file of Docker Compose")
		return
	}
	for _, item := range services.Items {
		c.names = append(c.names, item.Key)
	}
	c.interpolate(root, 0)
	rules := draft.Keys(draft.Notes(keys, "file of compose"), draft.Rules{"services": draft.Kept})
	for _, item := range root.Items {
		rule, known := rules.For(item.Key)
		if !known {
			rule = other
		}
		rule(d.Head, item.Setting())
	}
	for _, item := range services.Items {
		if item.Kind == source.Map {
			c.service(item)
		} else {
			d.Wrong(item.Setting(), "is not a service", "write its keys below it")
		}
	}
	for _, x := range c.services {
		c.order(x)
	}
}

// readVariables reads .env.
func (c *project) readVariables() {
	text, _ := c.Read(c.Path(".env")) //nolint:errcheck // there need not be one
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			c.variables[strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
}

// other says what becomes of a key that compose itself does not use, or that is not known.
func other(p *draft.Block, s source.Setting) {
	if strings.HasPrefix(s.Key, "x-") {
		p.Note("", s, "not needed: compose ignores it, but where it is merged")
		return
	}
	p.Lacks(s, unknown)
}

// interpolation is what compose expands in every value.
var interpolation = pattern.Lazy(`\$(?:\$|\{(\w+)(?:(:?[-?+])([^}]*))?\}|(\w+))`)

// interpolate expands the variables of all values, with .env and the environment as they are now.
func (c *project) interpolate(n *source.Node, depth int) {
	for _, item := range n.Items {
		c.interpolate(item, depth+1)
	}
	if n.Kind != source.Scalar || !strings.Contains(n.Value, "$") {
		return
	}
	text := n.Value
	n.Value = interpolation().ReplaceAllStringFunc(text, func(v string) string {
		m := interpolation().FindStringSubmatch(v)
		name := m[1] + m[4]
		if v == "$$" {
			return "$"
		}
		value, known := c.Getenv(name)
		if !known {
			value, known = c.variables[name]
		}
		switch {
		case strings.HasSuffix(m[2], "+") && known:
			return m[3]
		case known && (value != "" || !strings.HasPrefix(m[2], ":")):
			c.Head.Note("", source.Setting{At: n.At, Text: v}, "as it was at the conversion")
			return strings.ReplaceAll(value, "\x00", "")
		case strings.HasSuffix(m[2], "-"):
			return m[3]
		case !strings.HasSuffix(m[2], "+"):
			c.Head.Lacks(source.Setting{At: n.At, Text: v}, "the variable is not set: write its value")
		}
		return ""
	})
}

// service converts one service.
func (c *project) service(n *source.Node) {
	x := &composed{Block: c.NewProgram(n.Setting(), n.Key), project: c, node: n}
	c.services = append(c.services, x)
	x.rules().each(x.Block, n)
	x.finish()
}

// order sets after which services one starts, when it is known which of them supervisord runs.
func (c *project) order(x *composed) {
	var after []string
	for _, s := range x.needs {
		if len(s.Node.Items) == 0 {
			x.Note("", s, "not needed: it names no service")
		}
		for _, item := range s.Node.Items {
			name := cmp.Or(item.Key, item.Value)
			if s.Key == "links" {
				name, _, _ = strings.Cut(name, ":")
			}
			i := slices.IndexFunc(c.services, func(other *composed) bool { return other.node.Key == name && other != x })
			condition := item.Get("condition")
			switch {
			case condition != nil && condition.Value == "service_completed_successfully":
				x.Lacks(s, "run "+name+" in reload.preflight: after waits until a program is ready, and not until it has ended")
			case i < 0:
				x.Lacks(s, fmt.Sprintf("there is no service %s", name))
			case c.services[i].Off && !x.Off:
				x.Lacks(s, fmt.Sprintf("%[1]s does not run here: when it does, write after = [%[2]q]", name,
					c.services[i].ProgramName))
			case !slices.Contains(after, c.services[i].ProgramName):
				after = append(after, c.services[i].ProgramName)
			}
		}
	}
	if len(after) > 0 {
		x.Set("after", after)
	}
}

// rules are the keys of a service.
func (x *composed) rules() rules {
	return rules{
		otherwise: other,
		structured: draft.Keys(draft.Notes(keys, "compose"), draft.Rules{
			"command entrypoint": draft.Kept,
			"environment":        x.environment,
			"env_file":           x.envFile,
			"ports":              x.ports,
			"healthcheck":        x.healthcheck,
			"deploy":             x.deploy,
			"ulimits":            x.ulimits,
			"depends_on links":   func(_ *draft.Block, s source.Setting) { x.needs = append(x.needs, s) },
			"profiles":           x.profiles,
			"cap_add":            x.capabilities,
			"security_opt":       x.securityOpt,
		}),
		one: draft.Rules{
			"working_dir":       draft.To("directory", draft.AsPath),
			"user":              x.user,
			"stop_signal":       draft.To("stop.signal", draft.AsSignal),
			"stop_grace_period": draft.To("stop.timeout", asSeconds(0.001)),
			"restart":           x.restart,
			"scale":             draft.To("workers", draft.AsWorkers),
			"mem_limit":         draft.To("limits.max_memory", asBytes),
			"oom_score_adj":     draft.To("limits.oom_score_adj", asNumber(-1000, 1000)),
		},
	}
}

// asSeconds reads a duration such as 1m30s.
func asSeconds(shortest float64) draft.Reader {
	return func(p *draft.Block, key string, s source.Setting) (any, bool) {
		n, ok := span(s.Value, 1)
		if !ok {
			p.Wrong(s, fmt.Sprintf("%q is not a duration", s.Value), "write for example 1m30s")
			return nil, false
		}
		return p.Duration(key, s, n, shortest)
	}
}

func (x *composed) environment(p *draft.Block, s source.Setting) {
	pairs(p, s, func(item source.Setting, name, value string) {
		p.Environment(item, name, value)
		for _, service := range x.project.names {
			if isHost(name, value, service) {
				p.Lacks(item, service+" is the name of a service, which no machine has: write where it listens here")
			}
		}
	})
}

// isHost reports whether a variable names a host: in a URL, with a port, or alone if its name says so.
func isHost(variable, value, host string) bool {
	_, after, isURL := strings.Cut(value, "://")
	if isURL {
		value, _, _ = strings.Cut(after, "/")
	}
	value = value[strings.LastIndexByte(value, '@')+1:]
	name, port, hasPort := strings.Cut(value, ":")
	_, err := strconv.Atoi(port)
	return name == host && (isURL && !hasPort || hasPort && err == nil || strings.Contains(variable, "HOST"))
}

func (x *composed) envFile(p *draft.Block, s source.Setting) {
	list := s.Node.Items
	if s.Node.Kind != source.List {
		list = []*source.Node{s.Node}
	}
	for _, item := range list {
		file, required := item, true
		if item.Kind == source.Map {
			if file = item.Get("path"); file == nil {
				p.Wrong(s, "has no path", "write path: FILE")
				return
			}
			if r := item.Get("required"); r != nil && r.Value == "false" {
				required = false
			}
		}
		at := p.Path(file.Value)
		if !required {
			at = "-" + at
		}
		x.files = append(x.files, at)
		p.Set("environment_file", x.files)
	}
	if x.Given["environment"].Key != "" || x.node.Get("environment") != nil {
		p.Note("", s, "here the file wins over environment; under compose it is the other way round")
	}
}

// ports finds where clients come to.
func (x *composed) ports(p *draft.Block, s source.Setting) {
	for _, item := range s.Node.Items {
		of := item.Setting()
		host, published, protocol, inside := "", "", "", ""
		if item.Kind == source.Map {
			of.Text = item.String()
			get := func(key string) string {
				if n := item.Get(key); n != nil {
					return n.Value
				}
				return ""
			}
			host, published, protocol = get("host_ip"), get("published"), get("protocol")
			inside = get("target")
		} else {
			of.Text = item.Value
			host, published, inside, protocol = draft.Port(item.Value)
		}
		at, isPort := draft.Publish(host, published, inside)
		switch {
		case !isPort:
			p.Lacks(of, "write the address of each listener: [[program."+p.ProgramName+".listen]]")
		case protocol != "" && protocol != "tcp":
			x.udp = append(x.udp, of)
		default:
			x.published = append(x.published, at)
			x.mapped = append(x.mapped, ":"+inside, ":"+published)
		}
	}
}

func (x *composed) healthcheck(p *draft.Block, s source.Setting) {
	test := s.Node.Get("test")
	if disable := s.Node.Get("disable"); test == nil || disable != nil && disable.Value == "true" {
		p.Note("", s, "not needed: there is no test")
		return
	}
	var argv []string
	switch first := test; {
	case test.Kind == source.Scalar:
		argv = []string{"sh", "-c", test.Value}
	case len(test.Items) > 1 && test.Items[0].Value == "CMD-SHELL":
		argv = []string{"sh", "-c", test.Items[1].Value}
	case len(test.Items) > 1 && test.Items[0].Value == "CMD":
		for _, item := range first.Items[1:] {
			argv = append(argv, item.Value)
		}
	default:
		p.Note("", s, "not needed: there is no test")
		return
	}
	p.Set("health.method", "exec")
	p.Set("health.command", argv) // finish sets it again
	x.health = argv
	interval, timeout := 30.0, 30.0 // compose's defaults, in seconds
	ignored := draft.Keys(draft.Notes(keys, "healthcheck of compose"), draft.Rules{"test": draft.Kept})
	known := rules{otherwise: draft.None(unknown), structured: ignored, one: draft.Rules{
		"disable":  draft.Kept,
		"interval": func(_ *draft.Block, s source.Setting) { interval, _ = span(s.Value, 1) },
		"timeout":  func(_ *draft.Block, s source.Setting) { timeout, _ = span(s.Value, 1) },
		"retries":  draft.To("health.failures", asNumber(1, 1000)),
	}}
	known.each(p, s.Node)
	if value, ok := p.Duration("health.interval", s, interval, 0.1); ok {
		p.Set("health.interval", value)
	}
	if value, ok := p.Duration("health.timeout", s, timeout, 0.1); ok {
		p.Set("health.timeout", value)
	}
}

func (x *composed) deploy(p *draft.Block, s source.Setting) {
	rules{otherwise: draft.None("it is for a cluster of machines"), structured: draft.Notes(keys, "deploy of compose"),
		one: draft.Rules{"replicas": draft.To("workers", draft.AsWorkers)}}.each(p, s.Node)
}

func (x *composed) ulimits(p *draft.Block, s source.Setting) {
	known := strings.Fields("as core cpu data fsize memlock msgqueue nofile nproc rtprio rttime sigpending stack")
	for _, item := range s.Node.Items {
		of := item.Setting()
		value := item
		if item.Kind == source.Map {
			if value = item.Get("soft"); value == nil {
				value = item
			}
		}
		n, err := strconv.ParseInt(value.Value, 10, 64)
		switch found := strings.Join(known, " "); {
		case !strings.Contains(" "+found+" ", " "+item.Key+" "):
			p.Lacks(of, "limits has no such key")
		case err != nil || n < -1:
			p.Wrong(of, fmt.Sprintf("%q is not a limit", value.Value), "write a number, or -1")
		case n < 0:
			p.Set(draft.Limit(item.Key), "unlimited")
		default:
			p.Set(draft.Limit(item.Key), n)
		}
	}
}

func (x *composed) profiles(p *draft.Block, s source.Setting) {
	p.Off = true
	p.Lacks(s, "supervisord starts every program; remove the # of these lines to run this one")
}

func (x *composed) capabilities(p *draft.Block, s source.Setting) {
	if names, ok := words(p, s); ok && len(names) > 0 && x.node.Get("user") != nil {
		p.Set("limits.ambient_capabilities", names)
		return
	}
	p.Lacks(s, "a program that runs as root has every capability of supervisord")
}

func (x *composed) securityOpt(p *draft.Block, s source.Setting) {
	if strings.Contains(s.Node.String(), "no-new-privileges") {
		p.Set("limits.no_new_privileges", true)
		return
	}
	p.Lacks(s, "supervisord does not restrict programs: set it in the unit of supervisord, where it holds for all of them")
}

func (x *composed) user(p *draft.Block, s source.Setting) {
	user, group, both := strings.Cut(s.Value, ":")
	s.Value = user
	draft.To("user", draft.AsAccount)(p, s)
	if s.Value = group; both {
		draft.To("group", draft.AsAccount)(p, s)
	}
}

func (x *composed) restart(p *draft.Block, s source.Setting) {
	policy, most, _ := strings.Cut(s.Value, ":")
	when := map[string]string{"no": "never", "false": "never", "always": "always", "unless-stopped": "always",
		"on-failure": "on-failure"}[policy]
	if when == "" {
		p.Wrong(s, fmt.Sprintf("%q is unknown", s.Value), "write no, always, unless-stopped or on-failure")
		return
	}
	p.Set("restart.when", when)
	if most != "" {
		p.Lacks(s, "supervisord never gives up: it retries at growing intervals, up to restart.backoff.max (30s)")
	}
}

// finish sets the command, and what compose does without any key.
func (x *composed) finish() {
	s := x.node.Setting()
	s.Text = x.node.Key
	for _, key := range []string{"entrypoint", "command"} {
		if given, ok := x.Given[key]; ok {
			s = given
			list, _ := words(x.Block, given)
			x.Run.Words = append(x.Run.Words, list...)
		}
	}
	image := ""
	if n := x.node.Get("image"); n != nil {
		image = n.Value
	}
	x.InImage(s, image, x.node.Get("entrypoint") != nil)
	x.Argv()
	x.Serve(s, x.published...)
	for _, of := range x.udp {
		x.Lacks(of, "write a listener for it, such as address = \"udp:0.0.0.0:53\", then remove strategy: until then only "+
			"one process can open the port")
		x.Set("reload.strategy", "stop-first")
	}
	x.Argv()
	if argv := x.health; len(argv) > 0 {
		if len(x.Listen) > 0 { // the server listens where clients come, not at the container's port
			last := len(argv) - 1
			argv[last] = strings.NewReplacer(x.mapped...).Replace(argv[last])
		}
		x.Set("health.command", argv)
	}
	if x.Value("ready.method") == "" {
		x.Note("ready", source.Setting{At: x.node.At, Text: x.node.Key}, draft.AliveFor)
		x.ReadyAfter(s, 1)
	}
	x.Otherwise("stop.timeout", "10s")
	x.RestartAfterFailure(s, "without restart, compose")
}

// IsCompose reports whether a file has the name of one of Docker Compose.
func IsCompose(name string) bool {
	base := strings.TrimSuffix(strings.TrimSuffix(path.Base(name), ".yaml"), ".yml")
	return base != path.Base(name) && (strings.HasPrefix(base, "docker-compose") || strings.HasPrefix(base, "compose"))
}

package apps

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/pattern"
)

// app is one app of pm2.
type app struct {
	*draft.Block
	node        *source.Node
	args        []string // of the script
	interpreted []string // node_args
	instances   int      // 0: one for each CPU
	cluster     bool
	out, err    draft.Stream
}

// yaml matches an ecosystem file in YAML.
var yaml = pattern.Lazy(`(?m)\A(?:\s*(?:#.*)?\n)*(?:apps|- ?\w+) *:`)

// PM2 converts an ecosystem file.
func PM2(d *draft.Draft) {
	root, problem := readEcosystem(d.Name, source.Normalize(d.Text))
	if problem != nil {
		d.Problems = append(d.Problems, *problem)
		return
	}
	list := root
	switch apps := root.Get("apps"); {
	case apps != nil:
		list = apps
		for _, item := range root.Items {
			if item != apps {
				d.Head.Lacks(item.Setting(), map[bool]string{true: "pm2 deploy copies a program to its machine: docs/deploys.md",
					false: unknown}[item.Key == "deploy"])
			}
		}
	case root.Kind == source.Map:
		list = &source.Node{Kind: source.List, Items: []*source.Node{root}}
	}
	if list.Kind == source.Map {
		list = &source.Node{Kind: source.List, Items: []*source.Node{list}}
	}
	for _, item := range list.Items {
		if item.Kind == source.Map {
			convertApp(d, item)
		} else {
			d.Head.Lacks(source.Setting{At: item.At, Text: item.String()}, "it is not an app")
		}
	}
}

// readEcosystem reads JSON or YAML. JavaScript is a program, which node evaluates.
func readEcosystem(name, text string) (*source.Node, *document.Problem) {
	if yaml().MatchString(text) {
		return source.ReadYAML(name, text)
	}
	root, problem := source.ReadJSON(name, text)
	if problem != nil {
		module := path.Join("/", name)
		if !path.IsAbs(name) {
			module = "./" + path.Clean(name)
		}
		problem.Remedy = fmt.Sprintf("if it is JavaScript, let node evaluate it, and convert the result: node -p "+
			"'JSON.stringify(require(%q))' "+
			"> ecosystem.json && supervisord convert ecosystem.json", module)
	}
	return root, problem
}

func convertApp(d *draft.Draft, n *source.Node) {
	script := n.Get("script")
	here := source.Setting{At: n.At, Text: "the app"}
	if script == nil {
		d.Wrong(here, "has no script", "write script: 'server.js'")
		return
	}
	name := strings.TrimSuffix(path.Base(script.Value), path.Ext(script.Value))
	if own := n.Get("name"); own != nil && own.Kind == source.Scalar {
		name = own.Value
	}
	a := &app{Block: d.NewProgram(source.Setting{At: n.At, Text: name, Comments: n.Comments}, name), node: n,
		instances: 1, out: draft.Stream{Kind: draft.Captured}, err: draft.Stream{Kind: draft.Captured}}
	a.rules().each(a.Block, n)
	if script.Value == "serve" {
		a.Off = true
		a.Lacks(script.Setting(), "pm2 itself serves the files: name another server, such as caddy file-server, and remove "+
			"the # of these lines")
	}
	a.finish(script)
}

// rules are the keys of an app.
func (a *app) rules() rules {
	return rules{
		otherwise: a.otherwise,
		structured: draft.Keys(draft.Notes(keys, "pm2"), draft.Rules{
			"name script interpreter exec_interpreter cwd": a.text,
			"args":                       a.read(&a.args),
			"interpreter_args node_args": a.read(&a.interpreted),
			"env":                        a.environment,
			"watch":                      a.watch,
			"stop_exit_codes":            a.stopExitCodes,
		}),
		one: draft.Keys(nil, draft.Rules{
			"instances":                 a.count,
			"exec_mode":                 a.mode,
			"max_memory_restart":        draft.To("limits.max_memory", asBytes),
			"kill_timeout":              draft.To("stop.timeout", asMilliseconds(0.001)),
			"listen_timeout":            draft.To("ready.timeout", asMilliseconds(0.001)),
			"wait_ready":                draft.Whether(a.waitReady, draft.Unneeded("this is the default")),
			"out_file output out":       func(p *draft.Block, s source.Setting) { a.out.Setting = s; a.out.To(s.Value) },
			"error_file error err_file": func(p *draft.Block, s source.Setting) { a.err.Setting = s; a.err.To(s.Value) },
			"cron_restart cron":         a.cron,
			"autorestart": draft.Whether(draft.Always("restart.when", "always"),
				draft.Always("restart.when", "never")),
			"min_uptime": draft.To("restart.stable_after", asMilliseconds(0.001)),
			"restart_delay exp_backoff_restart_delay": a.backoff,
			"uid user": draft.To("user", draft.AsAccount),
			"gid":      draft.To("group", draft.AsAccount),
			"treekill": draft.Whether(draft.Always("stop.group", true),
				draft.Unneeded("the signal goes to the worker alone")),
			"port": func(p *draft.Block, s source.Setting) { p.Environment(s, "PORT", s.Value) },
		}),
	}
}

// text keeps a key that other code reads from Given.
func (a *app) text(p *draft.Block, s source.Setting) {
	if s.Node.Kind != source.Scalar {
		p.Wrong(s, "is not a single value", "write one value")
	}
}

func (a *app) otherwise(p *draft.Block, s source.Setting) {
	stage, isStage := strings.CutPrefix(s.Key, "env_")
	switch {
	case isStage && stage == a.Stage:
		a.environment(p, s)
	case isStage:
		p.Note("", s, "not used: convert with --env "+stage+" to use it")
	default:
		p.Lacks(s, unknown)
	}
}

func (a *app) read(into *[]string) draft.Rule {
	return func(p *draft.Block, s source.Setting) {
		if s.Node.Kind == source.Scalar && s.Value == "" {
			return
		}
		*into, _ = words(p, s)
	}
}

func (a *app) environment(p *draft.Block, s source.Setting) {
	pairs(p, s, func(item source.Setting, name, value string) { p.Environment(item, name, value) })
}

func (a *app) watch(p *draft.Block, s source.Setting) {
	if paths, ok := words(p, s); s.Node.Kind == source.List && ok && len(paths) > 0 {
		p.Set("watch", paths)
	} else if on, ok := p.Truth(s); s.Node.Kind == source.Scalar && ok && on {
		p.Set("watch", []string{"."})
	}
}

func (a *app) stopExitCodes(p *draft.Block, s source.Setting) {
	text := s.Value
	if s.Node.Kind == source.List {
		text = strings.Trim(s.Node.String(), "[]")
	}
	var codes []int
	for code := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(code))
		if err != nil || n < 0 || n > 255 {
			p.Wrong(s, fmt.Sprintf("%q is not an exit code", code), "write numbers from 0 to 255")
			return
		}
		if n > 0 {
			codes = append(codes, n)
		}
	}
	p.Set("restart.when", "on-failure")
	if len(codes) > 0 {
		p.Set("success_exit_codes", codes)
	}
}

func (a *app) count(p *draft.Block, s source.Setting) {
	if s.Value == "max" {
		s.Value = "0"
	}
	n, ok := p.Integer(s)
	if n < 0 {
		p.Note("", s, "one for each CPU, without exception")
		n = 0
	}
	if ok && p.Unless(n > 10_000, s, "workers must be from 1 to 10000") {
		a.instances = n
	}
}

func (a *app) mode(p *draft.Block, s source.Setting) {
	a.cluster = strings.HasPrefix(s.Value, "cluster")
	if !a.cluster {
		p.Note("", s, "not needed: this is the default")
	}
}

func (a *app) waitReady(p *draft.Block, s source.Setting) {
	p.Lacks(s, "process.send('ready') needs pm2, and fails without it: write a line end to the descriptor NOTIFY_FD "+
		"instead "+
		"(fs.writeSync(Number(process.env.NOTIFY_FD), '\\n')), and set ready.method = \"notify\"")
}

func (a *app) cron(p *draft.Block, s source.Setting) {
	p.Lacks(s, "a line of crontab(5) does it: "+s.Value+" supervisord reload "+p.ProgramName)
}

func (a *app) backoff(p *draft.Block, s source.Setting) {
	const longest, shortest = 30, 0.001 // restart.backoff.max, in seconds
	n, ok := span(s.Value, 0.001)
	if !ok || n > draft.Year {
		p.Wrong(s, fmt.Sprintf("%q is not a duration", s.Value), "write a number of milliseconds")
		return
	}
	if n < shortest {
		p.Note("", s, "not needed: the first wait is 200ms: restart.backoff.min")
		return
	}
	from, _ := p.Duration("restart.backoff", s, n, shortest)
	to, _ := p.Duration("restart.backoff", s, max(n, longest), shortest)
	p.Set("restart.backoff", draft.Raw(fmt.Sprintf("{ min = %q, max = %q }", from, to)))
}

// finish sets the command, and what pm2 does without any key.
func (a *app) finish(script *source.Node) {
	s := script.Setting()
	a.Set("directory", a.Path(a.Given["cwd"].Value))
	if script.Kind == source.Scalar {
		a.Run.Words = append(a.interpreter(script.Value), a.args...)
	}
	if len(a.Run.Words) == 0 || a.Run.Words[0] == "" {
		a.Run.Words, a.Off = []string{"SCRIPT"}, true
	}
	a.Argv()
	if a.Value("stop.signal") == "" {
		a.Set("stop.signal", "INT") // as pm2 does
	}
	known := a.Serve(s)
	a.Argv()
	a.workers()
	if a.Value("ready.method") == "" {
		timeout := a.Value("ready.timeout")
		a.ReadyAfter(s, 1)
		if timeout != "" && a.Given["wait_ready"].Value == "" {
			a.Note("ready", a.Given["listen_timeout"], "pm2 considers a worker ready after this time")
		}
	}
	if a.Value("stop.timeout") == "" {
		a.Set("stop.timeout", "1600ms") // pm2's default
	}
	if !known && a.Given["treekill"].Key == "" {
		a.Set("stop.group", true)
	}
	a.Otherwise("restart.when", "always")
	a.Outputs(a.out, a.err)
}

// interpreter returns the words that run the script.
func (a *app) interpreter(script string) []string {
	own := cmp.Or(a.Given["interpreter"].Value, a.Given["exec_interpreter"].Value)
	if own == "" {
		own = map[string]string{".js": "node", ".cjs": "node", ".mjs": "node", ".py": "python3", ".rb": "ruby", ".php": "php",
			".pl": "perl", ".sh": "bash", ".ts": "bun"}[path.Ext(script)]
	}
	if own == "" || own == "none" {
		list := strings.Fields(script) // npm start
		return append(list, a.interpreted...)
	}
	return append(append([]string{own}, a.interpreted...), script)
}

// workers sets how many workers there are. In pm2's cluster the processes share a port that pm2 opens; here they share
// a listener.
func (a *app) workers() {
	s := a.Given["instances"]
	switch {
	case s.Key == "" || a.instances == 1:
	case a.cluster && len(a.Listen) == 0 && a.Value("reload.strategy") != "":
		a.Lacks(s, "pm2 opens the port for all instances; here only one process can open it. With a listener, write "+
			"workers, too")
	case a.instances == 0:
		a.Set("workers", "auto")
	default:
		a.Set("workers", a.instances)
	}
	if mode := a.Given["exec_mode"]; a.cluster {
		a.Note("", mode, "workers and a listener replace the cluster: the workers share the listener, and the kernel "+
			"distributes the connections; "+
			"a reload needs no `pm2 reload`")
	}
}

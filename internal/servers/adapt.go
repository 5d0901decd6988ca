package servers

import (
	"cmp"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// command is how a server's command line is read, and how it is changed so that the server inherits its sockets.
type command struct {
	names  []string                 // of the program, as path.Match reads them
	when   func(args []string) bool // whether the words after the name start this server; nil: always
	become []string                 // replaces the name and the word after it: rails server

	bind    map[string]string // options with a whole address, and the option that takes its place in inherit
	host    []string          // options with a host
	port    []string          // options with a port
	portEnv bool              // the variable PORT is the port if no option is
	address string            // where it listens if nothing says so; "": nobody knows

	config   []string // options with the server's own file, in which listens finds addresses and includes further files
	file     string   // that file if no option names one
	listens  func() *regexp.Regexp
	includes func() *regexp.Regexp

	onlyTCP bool       // it cannot inherit a unix socket
	inherit []string   // words for each listener: {fd} is its descriptor, {option} the option for it
	add     [][]string // words that must be there
	drop    []option
	workers []string                                 // options with the number of processes, which supervisord starts instead
	script  func(words []string, file string) string // of a shell, for words and what the server's own file says
}

// option is an option that has to go, and why.
type option struct {
	names string // "--pid -p"
	value bool   // a value follows
	why   string
}

func (c *command) matches(argv []string) bool {
	name := path.Base(argv[0])
	named := slices.ContainsFunc(c.names, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok })
	return named && (c.when == nil || c.when(argv[1:]))
}

// World is what an address may depend on besides the command. A nil function knows nothing.
type World struct {
	Getenv func(name string) string          // a variable of the program
	Read   func(path string) (string, error) // a file that the command names, relative to the program's directory
	Glob   func(pattern string) ([]string, error)
	Stop   time.Duration // stop.timeout of the program, after which KILL comes; 0: 30 s, negative: never
}

// grace is how many seconds a server may take to finish its requests, so that it ends by itself before KILL comes.
func (w World) grace() string {
	const margin = 5 * time.Second
	stop := cmp.Or(w.Stop, 30*time.Second)
	switch {
	case stop < 0:
		stop = 30 * time.Second // what servers do by default
	case stop >= 2*margin:
		stop -= margin
	default:
		stop = max(stop*3/4, time.Second)
	}
	return strconv.Itoa(int(stop / time.Second))
}

// Command is a command that inherits its sockets.
type Command struct {
	Argv    []string // "{fd:NAME}" stands for the descriptor of a listener
	Listen  []Listen // where it listens; empty: unknown, or not to be inherited, and Argv is as it was
	Workers int      // how many processes the command would have started; 0: it does not say
	Notes   []string // what has changed, and why
}

// reading is a command line while it is adapted.
type reading struct {
	*command
	World
	words      []string // after the server's name
	kept       []string // of them
	addresses  []string
	options    []string // of each address, as in inherit
	host, port string
	file       string
	text       string // of it
	result     Command
}

// Adapt returns the server's command as it is under supervisord, and the addresses at which it listened.
func (s *Server) Adapt(argv []string, w World) Command {
	_, at := find(argv)
	if at < 0 || !s.Inherits() || s.Manual != "" {
		return Command{Argv: argv}
	}
	head := argv[:at+1]
	if s.command.become != nil {
		head, at = slices.Concat(argv[:at], s.command.become), at+1
	}
	r := &reading{command: &s.command, World: w, words: argv[at+1:]}
	for i := 0; i < len(r.words); {
		i = r.word(i)
	}
	r.find()
	if !r.listen() {
		return Command{Argv: argv}
	}
	r.result.Argv = slices.Concat(head, r.inherited(), r.kept)
	if s.command.script != nil {
		r.result.Argv = []string{"sh", "-c", s.command.script(r.result.Argv, r.text)}
	}
	return r.result
}

// Trim returns the server's command without the options that cannot stay under supervisord, and why they go. It is for a program that has its sockets
// already: a server that finds them by LISTEN_FDS needs no address of its own.
func (s *Server) Trim(argv []string, w World) (trimmed, notes []string) {
	_, at := find(argv)
	if at < 0 || s.command.become != nil {
		return argv, nil
	}
	c := command{drop: s.command.drop}
	if s.command.inherit == nil && s.Manual == "" {
		c.bind, c.host, c.port, c.add = s.command.bind, s.command.host, s.command.port, s.command.add
	}
	r := &reading{command: &c, World: w, words: argv[at+1:]}
	for i := 0; i < len(r.words); {
		i = r.word(i)
	}
	var added []string
	if r.find(); len(r.addresses) > 0 {
		r.result.Notes = append(r.result.Notes, strings.Join(r.addresses, ", ")+" is removed from the command: it inherits the socket")
		added = r.inherited()
	}
	return slices.Concat(argv[:at+1], added, r.kept), r.result.Notes
}

// Needs returns the words that the command of a server must have to inherit a listener named http.
func (s *Server) Needs() []string {
	r := &reading{command: &s.command, addresses: []string{"HOST:PORT"}, result: Command{Listen: []Listen{{Name: "http"}}}}
	if option := slices.Sorted(maps.Values(s.command.bind)); len(option) > 0 {
		r.options = option[:1]
	}
	return r.inherited()
}

// word reads the word at i, and returns the index of the next.
func (r *reading) word(i int) int {
	name, value, next := r.words[i], "", i+1
	if n, v, ok := strings.Cut(name, "="); ok && strings.HasPrefix(n, "--") {
		name, value = n, v
	} else if i+1 < len(r.words) {
		value, next = r.words[i+1], i+2
	}
	if len(name) > 2 && name[0] == '-' && name[1] != '-' && r.takesValue(name[:2]) && !r.takesValue(name) { // -p3000
		name, value, next = name[:2], name[2:], i+1
	}
	as, binds := r.bind[name]
	switch {
	case binds:
		r.addresses, r.options = append(r.addresses, value), append(r.options, as)
	case slices.Contains(r.command.host, name):
		r.host = value
	case slices.Contains(r.command.port, name):
		r.port = value
	case slices.Contains(r.command.workers, name) && isNumber(value):
		r.result.Workers, _ = strconv.Atoi(value)
	case slices.Contains(r.config, name):
		r.file = value
		r.kept = append(r.kept, r.words[i:next]...)
	default:
		return r.other(i, next, name)
	}
	return next
}

// other reads a word that has nothing to do with addresses.
func (r *reading) other(i, next int, name string) int {
	for _, o := range r.drop {
		if slices.Contains(strings.Fields(o.names), name) {
			if !o.value {
				next = i + 1
			}
			r.result.Notes = append(r.result.Notes, strings.Join(r.words[i:next], " ")+" is removed: "+o.why)
			return next
		}
	}
	r.kept = append(r.kept, r.words[i])
	return i + 1
}

// takesValue reports whether a known option has a value.
func (r *reading) takesValue(name string) bool {
	_, binds := r.bind[name]
	return binds || slices.Contains(slices.Concat(r.command.host, r.command.port, r.config, r.command.workers), name) ||
		slices.ContainsFunc(r.drop, func(o option) bool { return o.value && slices.Contains(strings.Fields(o.names), name) })
}

// find finds where the server listens if the command does not say it in one word: by host and port, by the variable PORT, in its own file, or as it
// does by default.
func (r *reading) find() {
	host, port := split(r.command.address)
	switch {
	case len(r.addresses) > 0:
	case r.host != "" || r.port != "":
		r.addresses = []string{join(cmp.Or(r.host, host), cmp.Or(r.port, port))}
	case r.portEnv && r.Getenv != nil && r.Getenv("PORT") != "":
		r.addresses = []string{join("0.0.0.0", r.Getenv("PORT"))}
		r.result.Notes = append(r.result.Notes, "the port is the variable PORT")
	case r.fromFile(cmp.Or(r.file, r.command.file), 0):
		r.result.Notes = append(r.result.Notes, "the address is the one in "+cmp.Or(r.file, r.command.file))
	case r.file == "" && r.command.address != "":
		r.addresses = []string{r.command.address}
		r.result.Notes = append(r.result.Notes, "the command names no address: this is the default of the server")
	}
}

// fromFile finds addresses in the server's own file and those that it includes.
func (r *reading) fromFile(file string, depth int) bool {
	if r.Read == nil || file == "" || r.listens == nil {
		return false
	}
	text, err := r.Read(file)
	if err != nil {
		return false
	}
	r.text += text
	for _, m := range r.listens().FindAllStringSubmatch(text, -1) {
		if address := strings.Join(m[1:], ""); !slices.Contains(r.addresses, address) {
			r.addresses = append(r.addresses, address)
		}
	}
	const deepest = 2 // nginx.conf, sites-enabled/*, and what they share
	if r.includes != nil && r.Glob != nil && depth < deepest {
		for _, m := range r.includes().FindAllStringSubmatch(text, -1) {
			pattern := strings.TrimSpace(m[1])
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(file), pattern)
			}
			included, _ := r.Glob(pattern)
			for _, name := range included {
				r.fromFile(name, depth+1)
			}
		}
	}
	return len(r.addresses) > 0
}

// listen makes listeners of the addresses. It reports false if supervisord cannot open one of them.
func (r *reading) listen() bool {
	_, port := split(cmp.Or(r.command.address, ":80"))
	for i, value := range r.addresses {
		address, ok := Address(value, port)
		if !ok || r.onlyTCP && strings.HasPrefix(address, "unix:") {
			r.result.Listen = nil
			return false
		}
		name := "http"
		if i > 0 {
			name += strconv.Itoa(i + 1)
		}
		r.result.Listen = append(r.result.Listen, Listen{name, address})
	}
	return len(r.addresses) > 0
}

// inherited returns the words that make the server inherit its sockets.
func (r *reading) inherited() (words []string) {
	for i, l := range r.result.Listen {
		option := ""
		if i < len(r.options) {
			option = r.options[i]
		}
		for _, w := range r.inherit {
			words = append(words, strings.NewReplacer("{fd}", "{fd:"+l.Name+"}", "{address}", r.addresses[i], "{option}", option).Replace(w))
		}
	}
	for _, w := range r.add {
		if !slices.ContainsFunc(r.kept, func(have string) bool { return have == w[0] || strings.HasPrefix(have, w[0]+"=") }) {
			for _, word := range w {
				words = append(words, strings.Replace(word, "{grace}", r.grace(), 1))
			}
		}
	}
	return words
}

func join(host, port string) string {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}

func split(address string) (host, port string) {
	i := strings.LastIndexByte(address, ':')
	return address[:max(i, 0)], address[i+1:]
}

// Address reads an address as servers write it: "tcp://host:port", "unix:/path", "/path", "host:port", ":port", "*:port", "port", or "host" with the
// default port. It reports false for one that supervisord cannot open, such as "ssl://…", or that is not known before the start.
func Address(value, port string) (string, bool) {
	if value == "" || strings.ContainsAny(value, "\x00$#{}%, ") {
		return "", false
	}
	if scheme, rest, ok := strings.Cut(value, "://"); ok {
		value = rest
		switch scheme {
		case "unix":
			value = "unix:" + rest
		case "tcp", "http":
		default:
			return "", false
		}
	}
	value, _, _ = strings.Cut(value, "?")
	if file, ok := strings.CutPrefix(value, "unix:"); ok {
		return "unix:" + filepath.Clean(file), file != ""
	}
	host, number := split(value)
	switch {
	case strings.Contains(value, "/"), strings.HasSuffix(value, ".sock"):
		return "unix:" + filepath.Clean(value), true
	case isNumber(number) && (host == "*" || host == ""):
		return "0.0.0.0:" + number, true
	case isNumber(number) && (!strings.Contains(host, ":") || strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")):
		return value, true
	case strings.Contains(value, ":"), port == "":
		return "", false
	}
	return value + ":" + port, true
}

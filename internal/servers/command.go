package servers

import (
	"cmp"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/pattern"
)

// command is how a server's command line is read.
type command struct {
	names []string                 // of the program, as path.Match reads them
	when  func(args []string) bool // whether the words after the name start this server; nil: always

	bind    []string // options with a whole address
	host    []string // options with a host
	port    []string // options with a port
	env     []string // variables with the port, or the address, if no option and no file says it
	address string   // where it listens if nothing says so; "": nobody knows

	plain   bool     // a word that is an address, or a port, is where it listens
	program bool     // it runs a program of the project's, whose options and code may say where it listens
	over    []string // variables with the port that win over a file

	config   []string // options with the server's own file, in which listens finds addresses and includes further files
	file     string   // the files to look into if no option names one: the first that is there
	listens  func() *regexp.Regexp
	includes func() *regexp.Regexp

	takes bool // it takes the sockets that it inherits, whatever its command says
	// words in place of the option with a unix path, which only one process can open: {fd} is the listener's descriptor
	path  []string
	needs []need
	drop  []banned
	after func(words []string, file string) []string // changes what a row cannot say; file is the text of the server's own

	grace string // the option with the seconds after which it gives up what it has not finished
	stop  int    // those seconds if no option says them; 0: nobody knows
}

// need is words that must be there, and why. They are not added if there is the first of them, or a word that has
// unless in it.
type need struct {
	words  []string
	unless string
	why    string
}

// banned is an option that has to go, and why.
type banned struct {
	names string // "--pid -p"
	value bool   // a value follows
	why   string
}

func (c *command) matches(argv []string) bool {
	name := path.Base(argv[0])
	named := slices.ContainsFunc(c.names, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok })
	return named && (c.when == nil || c.when(argv[1:]))
}

// Surroundings is what an address may depend on besides the command. A nil function knows nothing.
type Surroundings struct {
	Getenv func(name string) string          // a variable of the program
	Read   func(path string) (string, error) // a file of the project or of the server, relative to the program's directory
	Glob   func(pattern string) ([]string, error)
}

func (w Surroundings) getenv(name string) string {
	if w.Getenv == nil {
		return ""
	}
	return w.Getenv(name)
}

func (w Surroundings) read(path string) string {
	if w.Read == nil || path == "" {
		return ""
	}
	text, _ := w.Read(path) //nolint:errcheck // a file that cannot be read says nothing
	return text
}

// CommandLine is what a command line says.
type CommandLine struct {
	Server  *Product      // nil: it is not known
	Argv    []string      // as it was, but for the changes; "{fd:NAME}" stands for the descriptor of a listener
	Listen  []Listen      // where it listens; empty: nobody knows, or nowhere
	From    string        // who says so, if not the command; "": the command
	Stop    time.Duration // after which the server gives up what it has not finished; 0: nobody knows
	Changes []string      // of the command, and why
}

// reading is a command line while it is read.
type reading struct {
	*command
	Surroundings
	words      []string // after the server's name
	kept       []string // of them
	addresses  []string
	bound      []int // where in kept the option with each address is; -1: nowhere
	host, port string
	any        bool   // no host is said
	file, text string // the server's own, and what is in it and in those that it includes
	result     CommandLine
}

// Read returns what a command says. It reads what the world has of the files and variables that the command depends on.
func Read(argv []string, w Surroundings) CommandLine {
	if Works(argv) {
		return CommandLine{Argv: argv}
	}
	server, at := find(argv)
	getenv := w.getenv
	w.Getenv = func(name string) string { return cmp.Or(assigned(argv, name), getenv(name)) }
	switch {
	case server == nil || at < 0: // nothing is changed in a script
		c := unknown(argv, w)
		c.Server = server
		return c
	case server.command.names[0] == "npm":
		c := script(argv, w)
		c.Server = server
		return c
	}
	r := server.read(argv[at+1:], w)
	r.find()
	r.listen()
	r.result.Server = server
	r.result.Argv = slices.Concat(argv[:at+1], r.complete())
	return r.result
}

func (s *Product) read(words []string, w Surroundings) *reading {
	r := &reading{command: &s.command, Surroundings: w, words: words,
		result: CommandLine{Stop: time.Duration(s.command.stop) * time.Second}}
	for i := 0; i < len(r.words); {
		i = r.word(i)
	}
	return r
}

// Trim returns a command whose program has its listeners already without the addresses that the server does not open
// then, and why.
func (c *CommandLine) Trim() (argv, notes []string) {
	_, at := find(c.Argv)
	if c.Server == nil || at < 0 || !c.Server.command.takes {
		return c.Argv, c.Changes
	}
	r := c.Server.read(c.Argv[at+1:], Surroundings{})
	notes = slices.Clone(c.Changes)
	for i, from := range slices.Backward(r.bound) {
		if from >= 0 {
			to := from + 1
			if !strings.HasSuffix(r.kept[from], r.addresses[i]) { // the value is the next word
				to++
			}
			r.kept = slices.Delete(r.kept, from, min(to, len(r.kept)))
		}
	}
	if len(r.addresses) > 0 {
		notes = append(notes, strings.Join(r.addresses, ", ")+" is removed from the command: it inherits the socket")
	}
	return slices.Concat(c.Argv[:at+1], r.kept), notes
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
	switch {
	case slices.Contains(r.bind, name):
		r.addresses, r.bound = append(r.addresses, value), append(r.bound, len(r.kept))
	case slices.Contains(r.command.host, name):
		r.host = value
	case slices.Contains(r.command.port, name):
		r.port = value
	case name == r.grace && isNumber(value):
		seconds, _ := strconv.Atoi(value) //nolint:errcheck // it is a number
		r.result.Stop = time.Duration(seconds) * time.Second
	case slices.Contains(r.config, name):
		r.file = value
	default:
		return r.other(i, next, name)
	}
	r.kept = append(r.kept, r.words[i:next]...)
	return next
}

// other reads a word that has nothing to do with addresses.
func (r *reading) other(i, next int, name string) int {
	for _, o := range r.drop {
		if slices.Contains(strings.Fields(o.names), name) {
			if !o.value {
				next = i + 1
			}
			r.change(strings.Join(r.words[i:next], " ") + " is removed: " + o.why)
			return next
		}
	}
	switch host, port := split(r.words[i]); {
	case r.plain && isPort(r.words[i]):
		r.port = r.words[i]
	case r.plain && isPort(port) && !strings.HasPrefix(host, "-"):
		r.addresses, r.bound = append(r.addresses, r.words[i]), append(r.bound, len(r.kept))
	case slices.Contains(r.config, "") && !strings.HasPrefix(r.words[i], "-") && i == 0: // redis-server FILE
		r.file = r.words[i]
	}
	r.kept = append(r.kept, r.words[i])
	return i + 1
}

// takesValue reports whether a known option has a value.
func (r *reading) takesValue(name string) bool {
	return slices.Contains(slices.Concat(r.bind, r.command.host, r.command.port, r.config), name) ||
		slices.ContainsFunc(r.drop, func(o banned) bool { return o.value && slices.Contains(strings.Fields(o.names), name) })
}

// find finds where the server listens if the command does not say it in one word: by host and port, in its own file or
// code, by a variable, or as it does by default.
func (r *reading) find() {
	host, port := split(r.command.address)
	if r.file == "" {
		for _, file := range strings.Fields(r.command.file) {
			if r.file == "" && r.read(file) != "" {
				r.file = file
			}
		}
	}
	switch named := r.file != "" && r.listens != nil; {
	case len(r.addresses) > 0:
	case r.program && r.option():
	case r.port != "":
		r.addresses, r.any = []string{join(cmp.Or(r.host, host), r.port)}, r.host == ""
	case r.addressed(r.over):
	case r.fromFile(r.file, 0):
		r.result.From = "the address is the one in " + r.file
	case r.program && r.fromCode():
		r.any, r.result.From = true, "the port is the one in its code"
	case r.addressed(r.env):
	case r.host != "" && port != "":
		r.addresses = []string{join(r.host, port)}
	case r.command.address != "" && (!named || r.read(r.file) != "" && !speaksOfAddresses().MatchString(r.text)):
		r.addresses, r.any = []string{r.command.address}, true
		r.result.From = "the command names no address: this is the default of the server"
	}
}

// speaksOfAddresses matches a file that may say where a server listens in a way that is known only when it starts.
var speaksOfAddresses = pattern.Lazy(`(?mi)^\s*(?:bind|listen|port)\b`)

func (r *reading) change(text string) { r.result.Changes = append(r.result.Changes, text) }

// option finds the address in an option of the project's program.
func (r *reading) option() bool {
	address := optionOf(r.words)
	if address == "" {
		return false
	}
	r.addresses, r.any = []string{address}, hostless(r.words, address)
	return true
}

// addressed finds the address in a variable.
func (r *reading) addressed(variables []string) bool {
	for _, name := range variables {
		value := r.getenv(name)
		if isPort(value) {
			r.any = r.host == ""
			value = join(cmp.Or(r.host, r.variableHost()), value)
		}
		if value != "" {
			r.addresses = []string{value}
			r.result.From = "the port is the variable " + name
			return true
		}
	}
	return false
}

// fromFile finds addresses in the server's own file and those that it includes.
func (r *reading) fromFile(file string, depth int) bool {
	if r.listens == nil {
		return false
	}
	text := r.read(file)
	r.text += text
	for _, m := range r.listens().FindAllStringSubmatch(text, -1) {
		address := strings.Join(m[1:], "")
		if port := r.getenv("PORT"); port != "" && strings.Contains(m[0], "PORT") {
			address = port
		}
		if isPort(address) && strings.Contains(strings.ToLower(m[0]), "port") { // and no host
			host, _ := split(r.command.address)
			address, r.any = join(cmp.Or(host, "0.0.0.0"), address), true
		}
		if !slices.Contains(r.addresses, address) {
			r.addresses = append(r.addresses, address)
		}
	}
	const deepest = 2 // nginx.conf, sites-enabled/*, and what they share
	if r.includes != nil && r.Glob != nil && depth < deepest {
		for _, m := range r.includes().FindAllStringSubmatch(text, -1) {
			pattern := strings.Trim(strings.TrimSpace(m[1]), `"`)
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(file), pattern)
			}
			included, _ := r.Glob(pattern) //nolint:errcheck // then there is none
			for _, name := range included {
				r.fromFile(name, depth+1)
			}
		}
	}
	return len(r.addresses) > 0
}

// listen makes listeners of the addresses. There is none if supervisord cannot open one of them.
func (r *reading) listen() {
	_, port := split(cmp.Or(r.command.address, ":80"))
	for i, value := range r.addresses {
		address, ok := Address(value, port)
		unix := strings.HasPrefix(address, "unix:")
		if !ok || unix && !r.takes && (len(r.path) == 0 || i >= len(r.bound)) {
			r.result.Listen, r.result.From = nil, ""
			return
		}
		l := Listen{Name: listenerName(i), Address: address, Any: r.any && strings.HasPrefix(address, "0.0.0.0:")}
		if host, port := split(value); host == "localhost" {
			l.Binds = ":" + port // which may be that of IPv6
		}
		r.result.Listen = append(r.result.Listen, l)
		if unix && !r.takes {
			r.change(address + ": the server inherits it, since each process that opens a path removes it first")
		}
	}
}

func listenerName(i int) string { return "http" + strings.TrimSuffix(strconv.Itoa(i+1), "1") }

// complete returns the words after the server's name.
func (r *reading) complete() []string {
	words := slices.Clone(r.kept)
	for i, l := range slices.Backward(r.result.Listen) {
		if i < len(r.bound) && strings.HasPrefix(l.Address, "unix:") && !r.takes {
			from, option := r.bound[i], words[r.bound[i]]
			to := min(from+2, len(words))
			if name, _, joined := strings.Cut(option, "="); joined {
				option, to = name, from+1
			}
			var by []string
			for _, w := range r.path {
				by = append(by, strings.NewReplacer("{fd}", "{fd:"+l.Name+"}", "{option}", option).Replace(w))
			}
			words = slices.Replace(words, from, to, by...)
		}
	}
	for _, n := range r.needs {
		has := func(word string) bool {
			return word == n.words[0] || strings.HasPrefix(word, n.words[0]+"=") || n.unless != "" &&
				strings.Contains(word, n.unless)
		}
		if !slices.ContainsFunc(words, has) {
			words = slices.Insert(words, min(r.options(), len(words)), n.words...)
			r.change(strings.Join(n.words, " ") + " is added: " + n.why)
		}
	}
	if r.after == nil {
		return words
	}
	changed := r.after(words, r.text)
	if !slices.Equal(changed, words) {
		r.change("-g is set: " + foreground + ", and each generation needs a pid file of its own")
	}
	return changed
}

// options returns the index in the words at which an option can be added: behind a word that says what to do, such as
// server.
func (r *reading) options() int {
	if r.when != nil && len(r.words) > 0 && !strings.HasPrefix(r.words[0], "-") {
		return 1
	}
	return 0
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

// Address reads an address as servers write it: "tcp://host:port", "unix:/path", "/path", "host:port", ":port",
// "*:port", "port", or "host" with the default port. It reports false for one that supervisord cannot open, such as
// "ssl://…", or that is not known before the start.
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
	case isPort(number) && (host == "*" || host == ""):
		return "0.0.0.0:" + number, true
	case isPort(number) && host == "localhost":
		return "127.0.0.1:" + number, true
	case isPort(number) && (!strings.Contains(host, ":") || strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")):
		return value, true
	case strings.Contains(value, ":"), port == "":
		return "", false
	}
	return value + ":" + port, true
}

// isPort reports whether a text is the number of a port that a program can be told, which 0 is not.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '0'
}

package servers

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// The names of options with a port, with a host, and with a whole address, without their dashes.
var (
	portOptions = strings.Fields("port p http-port http.port server.port Dserver.port Dhttp.port Dquarkus.http.port " +
		"web.port listen-port " +
		"spring.server.port Dmicronaut.server.port bind-port")
	hostOptions    = strings.Fields("host H hostname server.address Dserver.address bind-address")
	addressOptions = strings.Fields("listen addr address bind b http http-addr http.addr listen-address " +
		"web.listen-address listen-addr l urls http-listen")
)

// The variables that name a port, and an address, to many programs.
var (
	portVariables    = strings.Fields("PORT SERVER_PORT HTTP_PORT APP_PORT LISTEN_PORT")
	addressVariables = strings.Fields("LISTEN_ADDR LISTEN_ADDRESS HTTP_ADDR BIND_ADDR ADDR ADDRESS ASPNETCORE_URLS")
)

// Variable returns where a program listens by the variables that many programs read; "": they say nothing.
func (w Surroundings) Variable() (address, name string) {
	for _, name := range addressVariables {
		if address, ok := Address(strings.TrimRight(w.getenv(name), "/"), ""); ok && !strings.HasPrefix(address, "unix:") {
			return address, name
		}
	}
	for _, name := range portVariables {
		if port := w.getenv(name); isPort(port) {
			return join(w.variableHost(), port), name
		}
	}
	return "", ""
}

// variableHost returns the host of a port that a variable says.
func (w Surroundings) variableHost() string {
	for _, name := range []string{"HOST", "HOSTNAME", "BIND_HOST", "SERVER_ADDRESS"} {
		if at, err := netip.ParseAddr(w.getenv(name)); err == nil {
			return at.String()
		}
	}
	return "0.0.0.0"
}

// hostless reports whether an address has a host that no word says.
func hostless(words []string, address string) bool {
	return strings.HasPrefix(address, "0.0.0.0:") &&
		!slices.ContainsFunc(words, func(w string) bool {
			return strings.Contains(w, "0.0.0.0") || strings.Contains(w, ":") || strings.Contains(w, "*")
		})
}

// inText are the variables that a script expands, and their defaults.
var inText = pattern.Lazy(`\$(?:(\w+)|\{(\w+)(?::?-([^}$]*))?\})`)

// unknown reads the command of a program that no table has: by the names of options that such programs have, and by its
// code.
func unknown(argv []string, w Surroundings) CommandLine {
	c := CommandLine{Argv: argv}
	words := argv
	if script := inlined(argv); script != "" {
		filled := inText().ReplaceAllStringFunc(script, func(v string) string {
			m := inText().FindStringSubmatch(v)
			return cmp.Or(w.getenv(m[1]+m[2]), m[3], v)
		})
		words = scriptOf([]string{"sh", "-c", filled})
		if server, at := find(words); server != nil && at >= 0 { // a script stays as it is
			inner := Read(words, w)
			c.Listen, c.Stop, c.From = inner.Listen, inner.Stop, inner.From
			return c
		}
	}
	getenv := w.getenv
	w.Getenv = func(name string) string { return cmp.Or(assigned(words, name), getenv(name)) }
	address := optionOf(words)
	if address == "" {
		if address = w.code(programFile(words, w)); address != "" {
			c.From = "the port is the one in its code"
		}
	}
	if address == "" {
		var name string
		if address, name = w.Variable(); name != "" {
			c.From = "the port is the variable " + name
		}
	}
	if address != "" {
		c.Listen = []Listen{{Name: "http", Address: address, Any: hostless(words, address)}}
	}
	return c
}

// assigned returns a variable that the command itself sets, as `env PORT=80 ./web` does.
func assigned(words []string, name string) string {
	for _, word := range words {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return ""
}

// optionOf returns the address that the options of an unknown program name, such as 127.0.0.1:8099 of --port 8099; "":
// none.
func optionOf(words []string) string {
	host, port := "", ""
	for i, word := range words {
		name, value, joined := strings.Cut(word, "=")
		bare := strings.TrimLeft(name, "-")
		if bare == name {
			continue
		}
		if !joined && i+1 < len(words) {
			value = words[i+1]
		}
		switch {
		case slices.Contains(portOptions, bare) && isPort(value):
			port = value
		case slices.Contains(hostOptions, bare) && !strings.HasPrefix(value, "-"):
			host = value
		case slices.Contains(addressOptions, bare):
			if address, ok := Address(strings.TrimRight(value, "/"), ""); ok && strings.Contains(address, ":") {
				return address
			}
		}
	}
	if port == "" {
		return ""
	}
	address, _ := Address(join(cmp.Or(host, "0.0.0.0"), port), "")
	return address
}

// programFile returns the file with the code of a command: of an interpreter, or of node with a directory.
func programFile(words []string, w Surroundings) string {
	at := unwrap(words)
	if at >= len(words) {
		return ""
	}
	if slices.Contains([]string{".py", ".rb", ".js", ".mjs", ".cjs", ".ts", ".pl"}, path.Ext(words[at])) {
		return words[at]
	}
	name := path.Base(words[at])
	if !slices.ContainsFunc([]string{"node*", "bun", "deno"},
		func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
		return ""
	}
	return nodeFile(words[at+1:], w)
}

// nodeFile returns the file with the code that node runs.
func nodeFile(args []string, w Surroundings) string {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case slices.Contains([]string{"-r", "--require", "--import", "--loader", "--env-file"}, a):
			i++
		case strings.HasPrefix(a, "-"), a == "run":
		case a == ".":
			var p struct{ Main string }
			json.Unmarshal([]byte(w.read("package.json")), &p) //nolint:errcheck // then it has no main
			return cmp.Or(p.Main, "index.js")
		case path.Ext(a) == "" && w.read(a+".js") != "":
			return a + ".js"
		default:
			return a
		}
	}
	return ""
}

// Where code opens a port, by the language. A group of digits is the port; one that begins with "PORT" in its match is
// a default.
var (
	inJavaScript = pattern.Lazy(`(?:\bPORT['"]?\]?\)?\s*(?:\|\||\?\?)\s*["']?|\.listen\(\s*["']?|` +
		`\blisten\(\s*\{[^}]*\bport:\s*|\bserve\(\s*\{[^}]*\bport:\s*|` +
		`\b(?:const|let|var)\s+port\s*=\s*)(\d{2,5})\b`)
	inPython = pattern.Lazy(`(?:\bPORT["']\s*,\s*["']?|\bport\s*=\s*|\(\s*["'][\w.:]*["']\s*,\s*)(\d{2,5})\b`)
	inRuby   = pattern.Lazy(`(?:\bPORT["']\]?\)?\s*(?:,|\|\||\{)\s*["']?|\bset\s+:port\s*,\s*|` +
		`\bPort:\s*|:Port\s*=>\s*|TCPServer\.new\(?\s*(?:["'][\w.:]*["']\s*,\s*)?)(\d{2,5})\b`)
	inGo = pattern.Lazy(`(?:ListenAndServe(?:TLS)?|net\.Listen|\.(?:Run|Start|Listen))\(\s*(?:"tcp"\s*,\s*)?` +
		`"([\w.\[\]:]*:\d{2,5})"|\bAddr:\s*"([\w.\[\]:]*:\d{2,5})"`)
	inPerl   = pattern.Lazy(`(?:LocalPort|port)\s*=>\s*(\d{2,5})\b`)
	usesPORT = pattern.Lazy(`\bPORT\b`)
)

func codePattern(file string) func() *regexp.Regexp {
	switch path.Ext(file) {
	case ".py":
		return inPython
	case ".rb", ".ru":
		return inRuby
	case ".go":
		return inGo
	case ".pl", ".psgi":
		return inPerl
	}
	return inJavaScript
}

// code returns where a file of the project listens by its code, which may read the variable PORT; "": it does not say.
func (w Surroundings) code(file string) string {
	text := w.read(file)
	if port := w.getenv("PORT"); isPort(port) && usesPORT().MatchString(text) {
		return join(w.variableHost(), port)
	}
	return InCode(file, text)
}

// InCode returns where the text of a file of code listens; "": it does not say.
func InCode(file, text string) string {
	m := codePattern(file)().FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	address, _ := Address(strings.Join(m[1:], ""), "")
	if isPort(strings.Join(m[1:], "")) {
		address = "0.0.0.0:" + strings.Join(m[1:], "")
	}
	return address
}

// fromCode finds the address in the code of a program of the project's.
func (r *reading) fromCode() bool {
	address := r.Surroundings.code(nodeFile(r.words, r.Surroundings))
	if address == "" {
		return false
	}
	r.addresses = []string{address}
	return true
}

// script reads the script of package.json that npm and the like run.
func script(argv []string, w Surroundings) CommandLine {
	c := CommandLine{Argv: argv}
	var p struct{ Scripts map[string]string }
	if json.Unmarshal([]byte(w.read("package.json")), &p) != nil {
		return c
	}
	name := "start"
	for i, word := range argv {
		if word == "run" && i+1 < len(argv) {
			name = argv[i+1]
		} else if p.Scripts[word] != "" && i > 0 {
			name = word
		}
	}
	text := p.Scripts[name]
	if _, more, ok := cutWord(argv, "--"); ok { // npm start -- --port 80
		text += " " + strings.Join(more, " ")
	}
	if words := strings.Fields(text); len(words) > 0 && !slices.Contains([]string{"npm", "yarn", "pnpm"}, words[0]) {
		inner := Read([]string{"sh", "-c", text}, w)
		c.Listen, c.From = inner.Listen, inner.From
	}
	return c
}

func cutWord(words []string, at string) (before, after []string, found bool) {
	if i := slices.Index(words, at); i >= 0 {
		return words[:i], words[i+1:], true
	}
	return words, nil, false
}

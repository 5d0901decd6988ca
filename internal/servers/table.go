package servers

import (
	"slices"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// Settings that several servers share.
var (
	notify  = Setting{"ready.method", `"notify"`}
	accept  = Setting{"ready.method", `"accept"`}
	quit    = Setting{"stop.signal", `"QUIT"`}
	patient = Setting{"stop.timeout", `"30s"`}
)

// Why options have to go.
const (
	ownPID     = "old and new run at the same time, and would fight for one pid file"
	foreground = "supervisord starts it in the foreground"
	reloads    = "supervisord replaces it: use watch in [program.NAME] to do so when files change"
)

// table has a row for each server. Order matters where a name occurs twice.
func table() []*Server {
	return slices.Concat(python(), ruby(), perl(), web(), runtimes(), development())
}

// Where the servers' own files have an address.
var (
	gunicornBind  = pattern.Lazy(`(?m)^\s*bind\s*=\s*["']([^"']+)["']\s*(?:#.*)?$`)
	unicornListen = pattern.Lazy(`(?m)^\s*listen\s*\(?\s*["']?([^"',\s)]+)`)
	pumaBind      = pattern.Lazy(`(?m)^\s*(?:bind\s*\(?\s*["']([^"']+)["']|port\s*\(?\s*(?:ENV\.fetch\(["']PORT["']\)?[\s,{]*)?["']?(\d+))`)
	fpmListen     = pattern.Lazy(`(?m)^\s*listen\s*=\s*(\S+)`)
	fpmInclude    = pattern.Lazy(`(?m)^\s*include\s*=\s*(\S+)`)
	nginxInclude  = pattern.Lazy(`(?m)^\s*include\s+([^;]+);`)
	nginxListen   = pattern.Lazy(`(?m)^\s*listen\s+(\S+?)(?:\s[^;]*)?;`)
)

func python() []*Server {
	const drain = "copy examples/servers/asgi/drain.py beside the application, serve drain:app instead of it with environment = " +
		`{ APP = "MODULE:NAME", LISTEN_FD = "{fd:http}" }` + ", and use asyncio, not uvloop: otherwise requests on keep-alive connections are lost"
	return []*Server{
		{
			Name: "gunicorn", Page: "docs/servers.md#gunicorn", Example: "gunicorn.toml",
			Settings: []Setting{notify, patient},
			Remedy: "use the sync worker: gthread and the asynchronous workers keep connections and close them when they stop; " +
				"--preload makes a deploy fail if the application cannot be loaded",
			command: command{
				names: []string{"gunicorn", "gunicorn3", "gunicorn_paster"}, bind: map[string]string{"--bind": "", "-b": ""}, address: "127.0.0.1:8000",
				config: []string{"--config", "-c"}, file: "gunicorn.conf.py", listens: gunicornBind, portEnv: true, add: [][]string{{"--preload"}, {"--graceful-timeout", "{grace}"}},
				drop: []option{{"--daemon -D", false, foreground}, {"--pid -p", true, ownPID}, {"--reload", false, reloads}},
			},
		},
		{
			Name: "uvicorn", Page: "docs/servers.md#uvicorn-and-hypercorn", Example: "uvicorn.toml",
			Settings: []Setting{accept, patient}, Remedy: drain + " (--loop asyncio)",
			command: command{
				names: []string{"uvicorn"}, host: []string{"--host"}, port: []string{"--port"}, bind: map[string]string{"--uds": ""}, address: "127.0.0.1:8000",
				inherit: []string{"--fd", "{fd}"}, workers: []string{"--workers"}, drop: []option{{"--reload", false, reloads}},
			},
		},
		{
			Name: "hypercorn", Page: "docs/servers.md#uvicorn-and-hypercorn", Example: "hypercorn.toml",
			Settings: []Setting{accept, patient}, Remedy: drain + ` (--worker-class asyncio); newer ones need "--workers", "0"`,
			command: command{
				names: []string{"hypercorn"}, bind: map[string]string{"--bind": "", "-b": ""}, address: "127.0.0.1:8000", inherit: []string{"--bind", "fd://{fd}"},
				workers: []string{"--workers", "-w"},
				drop:    []option{{"--pid -p", true, ownPID}, {"--reload", false, reloads}},
			},
		},
		{
			Name: "uWSGI", Page: "docs/servers.md#uwsgi", Example: "uwsgi.toml",
			Settings: []Setting{notify, patient},
			Remedy:   "remove http, socket, die-on-term, daemonize and pidfile from its own file: the command says all of it",
			command: command{
				names: []string{"uwsgi", "uwsgi-core", "uwsgi_python3"}, inherit: []string{"{option}", "fd://{fd}"},
				bind: map[string]string{"--http-socket": "--http-socket", "--http": "--http-socket", "--socket": "--socket", "-s": "--socket", "--uwsgi-socket": "--uwsgi-socket"},
				add: [][]string{{"--master"}, {"--need-app"}, {"--hook-master-start", "unix_signal:15 gracefully_kill_them_all"}, {"--worker-reload-mercy", "{grace}"},
					{"--add-header", "Connection: close"}},
				drop: []option{{"--die-on-term", false, "it drops what is in hand; the hook ends it gracefully"}, {"--daemonize -d --daemonize2", true, foreground},
					{"--pidfile --pidfile2 --safe-pidfile", true, ownPID}, {"--py-autoreload", true, reloads}},
			},
		},
	}
}

func ruby() []*Server {
	puma := command{
		names: []string{"puma"}, bind: map[string]string{"--bind": "", "-b": ""}, port: []string{"--port", "-p"}, address: "0.0.0.0:9292",
		config: []string{"--config", "-C"}, file: "config/puma.rb", listens: pumaBind, add: [][]string{{"--bind-to-activated-sockets", "only"}}, workers: []string{"--workers", "-w"},
		drop: []option{{"--daemon -d", false, foreground}, {"--pidfile", true, ownPID}},
	}
	rails := puma
	rails.names, rails.become, rails.address = []string{"rails"}, []string{"puma"}, "0.0.0.0:3000"
	rails.when = first("server", "s")
	rails.bind, rails.portEnv, rails.host = nil, true, []string{"--binding", "-b"}
	rails.drop = append([]option{{"--pid -P", true, ownPID}, {"--using -u", true, "the server is puma"}}, puma.drop...)
	const queue = "write queue_requests false in puma's configuration, and more threads: with the queue puma drops what is in it when it stops; " +
		`with the gem sd_notify, ready.method = "notify"`
	return []*Server{
		{
			Name: "Puma", Page: "docs/servers.md#puma", Example: "puma.toml", Settings: []Setting{accept, patient}, Hooked: []Setting{notify, patient},
			Remedy: queue, command: puma,
		},
		{
			Name: "Rails", Page: "docs/servers.md#puma", Example: "puma.toml", Settings: []Setting{accept, patient}, Hooked: []Setting{notify, patient},
			Remedy: "`rails server` cannot inherit a socket and allows no second instance, so puma runs the application; " + queue, command: rails,
		},
		{
			Name: "unicorn", Page: "docs/servers.md#unicorn", Example: "unicorn.toml", Settings: []Setting{accept, quit, patient}, Hooked: []Setting{notify, quit, patient},
			Remedy: "remove pid from unicorn's own file and write preload_app true; with the hook in examples/servers/unicorn/unicorn.rb, ready.method = \"notify\"",
			command: command{
				names: []string{"unicorn", "unicorn_rails"}, bind: map[string]string{"--listen": "--listen", "-l": "-l"}, port: []string{"--port", "-p"},
				host: []string{"--host", "-o"}, address: "0.0.0.0:8080", config: []string{"--config-file", "-c"}, listens: unicornListen,
				inherit: []string{"--listen", "{address}"}, drop: []option{{"--daemonize -D", false, foreground}},
			},
		},
	}
}

func perl() []*Server {
	plack := command{
		bind: map[string]string{"--listen": "", "-l": "", "--socket": "", "-S": ""}, host: []string{"--host", "-o"}, port: []string{"--port", "-p"}, address: "0.0.0.0:5000",
		drop: []option{{"--daemonize -D", false, foreground}, {"--pid", true, ownPID}, {"--reload -r", false, reloads}},
	}
	starman, starlet, plackup := plack, plack, plack
	starman.names, starman.add = []string{"starman"}, [][]string{{"--disable-keepalive"}}
	plackup.names, plackup.add, plackup.when = []string{"plackup"}, starman.add, optionIs("-s", "--server", "Starman")
	starlet.names, starlet.when = []string{"plackup"}, optionIs("-s", "--server", "Starlet", "Gazelle")
	settings, listener := []Setting{accept, quit, patient}, []Setting{{"defer_accept", `"5s"`}}
	return []*Server{
		{Name: "Starman", Page: "docs/servers.md#starlet-and-starman", Example: "starman.toml", Settings: settings, Listener: listener, command: starman},
		{Name: "Starman", Page: "docs/servers.md#starlet-and-starman", Example: "starman.toml", Settings: settings, Listener: listener, command: plackup},
		{Name: "Starlet", Page: "docs/servers.md#starlet-and-starman", Example: "starlet.toml", Settings: []Setting{accept, patient}, command: starlet},
	}
}

// web are web servers and proxies, which read all in their own files.
func web() []*Server {
	return []*Server{
		{
			Name: "nginx", Page: "docs/servers.md#nginx", Example: "nginx.toml", Settings: []Setting{accept, quit, patient},
			Listener: []Setting{{"nonblock", "true"}}, Variable: nginxSockets,
			Remedy: "write keepalive_timeout 0 in nginx.conf (since 1.27.4: keepalive_min_timeout 5s), and remove daemon and pid there; " +
				"every address of nginx.conf needs a listener, written alike",
			command: command{names: []string{"nginx"}, config: []string{"-c"}, file: "/etc/nginx/nginx.conf", listens: nginxListen, includes: nginxInclude,
				script: nginxScript},
		},
		{
			Name: "PHP-FPM", Page: "docs/servers.md#php-fpm", Example: "php-fpm.toml", Settings: []Setting{notify, quit, patient},
			Variable: fpmSockets,
			Remedy:   "write process_control_timeout = 25s in php-fpm.conf, and listen = HOST:PORT there as in the listener: PHP-FPM removes the path of a unix socket when it ends",
			command: command{
				names: []string{"php-fpm", "php-fpm[0-9]*"}, config: []string{"--fpm-config", "-y"}, onlyTCP: true, listens: fpmListen, includes: fpmInclude, add: [][]string{{"--nodaemonize"}},
				drop: []option{{"--daemonize -D", false, foreground}, {"-F", false, "--nodaemonize says the same"}, {"--pid -g", true, ownPID}},
			},
		},
		{
			Name: "php-cgi", Page: "docs/servers.md#fastcgi-on-fd-0", Example: "php-cgi.toml", Settings: []Setting{accept, patient, {"stdin", `"socket"`}},
			Remedy:  "set workers to the number of processes, and remove PHP_FCGI_CHILDREN: with it php-cgi ends its processes in the middle of a request",
			command: command{names: []string{"php-cgi", "php-cgi[0-9]*"}, bind: map[string]string{"-b": ""}},
		},
		{
			Name: "HAProxy", Page: "docs/servers.md#haproxy", Example: "haproxy.toml", Settings: []Setting{notify, {"stop.signal", `"USR1"`}, patient},
			Manual:  "in haproxy.cfg write bind fd@3 (the first listener; the next is fd@4) instead of the address, and start it with -Ws, without -D and -p",
			Remedy:  "keep option idle-close-on-response, and hard-stop-after 25s",
			command: command{names: []string{"haproxy"}},
		},
		{
			Name: "lighttpd", Page: "docs/servers.md#lighttpd", Example: "lighttpd.toml", Settings: []Setting{accept, {"stop.signal", `"INT"`}, patient},
			Manual:  "in lighttpd.conf write server.systemd-socket-activation = \"enable\", keep server.bind and server.port as in the listener, and start it with -D",
			Remedy:  "write server.max-keep-alive-requests = 0",
			command: command{names: []string{"lighttpd"}},
		},
		{
			Name: "Caddy", Page: "docs/servers.md#caddy", Example: "caddy.toml", Settings: []Setting{notify, {"stop.timeout", `"40s"`}},
			Manual:  "in the Caddyfile write bind fd/3 (the first listener; the next is fd/4) and admin off; Caddy must be 2.10 or newer",
			Remedy:  "write shutdown_delay 5s, grace_period 25s, and a header Connection: close while it shuts down, as in examples/servers/caddy/Caddyfile",
			command: command{names: []string{"caddy"}, when: first("run", "start")},
		},
	}
}

// nginxSockets is the variable by which an nginx tells its successor of its sockets: a semicolon follows each number.
func nginxSockets(listen []Listen) (name, value string) {
	for _, l := range listen {
		value += "{fd:" + l.Name + "};"
	}
	return "NGINX", value
}

// fpmSockets is the same of PHP-FPM, which spells an address of IPv6 without brackets.
func fpmSockets(listen []Listen) (name, value string) {
	var pairs []string
	for _, l := range listen {
		pairs = append(pairs, strings.NewReplacer("[", "", "]", "").Replace(l.Address)+"={fd:"+l.Name+"}")
	}
	return "FPM_SOCKETS", strings.Join(pairs, ",")
}

// runtimes are languages whose programs listen themselves.
func runtimes() []*Server {
	return []*Server{
		{
			Name: "Next.js", Page: "docs/servers.md#node",
			Remedy:  opens + "; or serve the application from a server.js of your own (Next's custom server) that calls listen({ fd: 3 })",
			command: command{names: []string{"next", "next-server"}, when: first("start", "dev")},
		},
		{
			Name: "Node", Page: "docs/servers.md#node", Example: "node.toml", Settings: []Setting{accept, patient}, Hooked: []Setting{notify, patient},
			Manual: "copy examples/servers/node/inherit.js beside the program, and write --require ./inherit.js before its name: then its listen(port) takes the inherited " +
				"socket; or let it call server.listen({ fd: 3 }) itself, as examples/servers/node/server.js does",
			Remedy: "start it with node --require ./inherit.js (examples/servers/node), or let it do the same on TERM: close only the listening socket, answer with " +
				"Connection: close, and exit with the last connection, as server.close() alone closes idle connections; for more processes set workers, not the module cluster",
			command: command{names: []string{"node", "nodejs", "node[0-9]*"}, when: script},
		},
		{
			Name: "Java", Page: "docs/servers.md#java", Example: "java.toml", Settings: []Setting{accept, patient}, Hooked: []Setting{notify, patient},
			Listener: []Setting{{"fd", "0"}},
			Manual:   "the program takes its socket from System.inheritedChannel(); examples/servers/java/Server.java shows it",
			command:  command{names: []string{"java"}},
		},
	}
}

// opens is what a server does that cannot inherit a socket.
const opens = "it cannot inherit a socket, but opens its port as always if the program has a listener and bind is on " +
	"(docs/servers.md#servers-that-open-their-own-port)"

// development are servers that cannot inherit a socket, and what to use instead.
func development() []*Server {
	cannot := func(name, remedy string, when func([]string) bool, names ...string) *Server {
		return &Server{Name: name, Page: "docs/servers.md", Remedy: remedy, command: command{names: names, when: when}}
	}
	return []*Server{
		cannot("Python's http.server", "for real traffic serve the files with nginx or Caddy; "+opens, nil, "http.server"),
		cannot("Flask's development server", `for real traffic use gunicorn: command = ["gunicorn", "MODULE:app"]; `+opens, named("run"), "flask"),
		cannot("Django's development server", `for real traffic use gunicorn: command = ["gunicorn", "PROJECT.wsgi"]; `+opens, named("runserver"), "manage.py", "django-admin"),
		cannot("PHP's development server", "for real traffic use PHP-FPM; "+opens, named("serve"), "artisan"),
		cannot("PHP's development server", "for real traffic use PHP-FPM; "+opens, named("-S"), "php", "php[0-9]*"),
		cannot("plackup's development server", `it serves one client at a time: use starlet: command = ["plackup", "-s", "Starlet", …]`, nil, "plackup"),
		cannot("WEBrick", `for real traffic use puma: command = ["puma"]; `+opens, nil, "rackup"),
		cannot("Apache", opens, nil, "apache2", "httpd", "apache2ctl", "apachectl", "apache2-foreground"),
		cannot("a script of package.json", "npm puts a shell between supervisord and the server, which gets no signal: write the command of the script instead",
			named("start", "run"), "npm", "yarn", "pnpm"),
	}
}

// first reports whether the first word is one of these.
func first(words ...string) func([]string) bool {
	return func(args []string) bool { return len(args) > 0 && slices.Contains(words, args[0]) }
}

// named reports whether one of these words is there.
func named(words ...string) func([]string) bool {
	return func(args []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(args, w) })
	}
}

// optionIs reports whether an option, by its short or long name, has one of these values.
func optionIs(short, long string, values ...string) func([]string) bool {
	return func(args []string) bool {
		for i, a := range args {
			value, joined := strings.CutPrefix(a, long+"=")
			if !joined && strings.HasPrefix(a, short) && len(a) > len(short) {
				value, joined = a[len(short):], true
			}
			if !joined && (a == short || a == long) && i+1 < len(args) {
				value = args[i+1]
			}
			if slices.Contains(values, value) {
				return true
			}
		}
		return false
	}
}

// script reports whether node is given a program, not -e or --version.
func script(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") }) && !named("-e", "-p", "--eval", "--print")(args)
}

// nginxScript returns what a shell runs: nginx in the foreground, with a pid file for each generation. nginx allows a directive only once, so those in
// its own file stay there.
func nginxScript(argv []string, file string) string {
	script, pid, directives := "exec", "/run/nginx", ""
	for i := 0; i < len(argv); i++ {
		switch argv[i] {
		case "-g":
			if i+1 < len(argv) {
				i++
				directives = strings.TrimSpace(nginxOwn().ReplaceAllString(argv[i], ""))
			}
			continue
		case "-p":
			pid = "nginx" // relative to the prefix
		}
		script += " " + quoted(argv[i])
	}
	own := nginxOwn().FindAllString(file, -1)
	has := func(name string) bool {
		return slices.ContainsFunc(own, func(d string) bool { return strings.HasPrefix(strings.TrimLeft(d, " \t;"), name) })
	}
	if !has("daemon") {
		directives += " daemon off;"
	}
	directives = strings.TrimSpace(directives)
	switch {
	case !has("pid"):
		return script + " -g " + quoted(strings.TrimSpace(directives+" pid "+pid+".")) + `"$SUPERVISORD_GENERATION.pid;"`
	case directives != "":
		return script + " -g " + quoted(directives)
	}
	return script
}

// nginxOwn are the directives that nginxScript sets.
var nginxOwn = pattern.Lazy(`(?m)(?:^|[ \t;])(?:daemon|pid)\s+[^;]*;?`)

// quoted quotes a word for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

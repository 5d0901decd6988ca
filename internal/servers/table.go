package servers

import (
	"path"
	"slices"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// Why options have to go.
const (
	ownPID     = "old and new run at the same time, and would fight for one pid file"
	foreground = "supervisord starts it in the foreground"
	ownFile    = "old and new run at the same time, and each needs a pid file of its own"
	reloads    = "supervisord replaces it: use watch in [program.NAME] to do so when files change"
)

// ownProtocol is why no variable may tell a server about its sockets.
const ownProtocol = "it takes sockets of LISTEN_FDS for such that speak its own protocol"

const notify, accept, page = "notify", "accept", "docs/servers.md"

// table has a row for each server. Order matters where a name occurs twice.
func table() []*Product {
	return slices.Concat(python(), pythonASGI(), ruby(), perl(), web(), proxies(), stores(), runtimes(), development())
}

// Where the servers' own files have an address.
var (
	gunicornBind  = pattern.Lazy(`(?m)^\s*bind\s*=\s*["']([^"']+)["']\s*(?:#.*)?$`)
	unicornListen = pattern.Lazy(`(?m)^\s*listen\s*\(?\s*["']?([^"',\s)]+)`)
	pumaBind      = pattern.Lazy(`(?m)^\s*(?:bind\s*\(?\s*["']([^"']+)["']|` +
		`port\s*\(?\s*(?:ENV(?:\.fetch\(|\[)["']PORT["']\]?\)?[\s,{|]*)?["']?(\d+))`)
	fpmListen     = pattern.Lazy(`(?m)^\s*listen\s*=\s*(\S+)`)
	fpmInclude    = pattern.Lazy(`(?m)^\s*include\s*=\s*(\S+)`)
	nginxInclude  = pattern.Lazy(`(?m)^\s*include\s+([^;]+);`)
	nginxListen   = pattern.Lazy(`(?m)^\s*listen\s+(\S+?)(?:\s[^;]*)?;`)
	apacheListen  = pattern.Lazy(`(?mi)^Listen\s+(\S+)`)
	apacheInclude = pattern.Lazy(`(?mi)^\s*Include(?:Optional)?\s+(\S+)`)
	haproxyBind   = pattern.Lazy(`(?m)^\s*bind\s+(\S+)`)
	lighttpdPort  = pattern.Lazy(`(?m)^\s*server\.port\s*=\s*(\d+)`)
	// The site addresses of a Caddyfile: the host in them is not where Caddy listens. One without a port means two, which
	// are not listed.
	caddySite = pattern.Lazy(`(?m)^(?:https?://)?(?:[^\s{}()#&@:]*:(?:\{\$\w+:)?(\d+)|` +
		`(?:localhost|[\w*-]+(?:\.[\w*-]+)+)\s*(?:[,{]|$))`)
	vitePort   = pattern.Lazy(`\bport:\s*(\d+)`)
	springPort = pattern.Lazy(`(?m)^server\.port\s*[=:]\s*(?:\$\{\w+:)?(\d+)|^server:[ \t]*\n(?:[ \t]+.*\n)*?[ ` +
		`\t]+port:[ \t]*(?:\$\{\w+:)?(\d+)`)
	redisPort = pattern.Lazy(`(?m)^\s*port\s+(\d+)`)
)

// asgi is a server of ASGI applications.
func asgi(name string, c command) *Product {
	const kept = "to lose no request on keep-alive connections either, "
	c.env = []string{"PORT"}
	advice := kept + "put a proxy in front of it that connects for each request"
	if name == "uvicorn" {
		advice = kept + "write --header connection:close"
	}
	return &Product{Name: name, Page: page + "#uvicorn-and-hypercorn", Ready: accept, Signal: "TERM", Advice: advice,
		command: c}
}

func python() []*Product {
	return []*Product{
		{
			Name: "gunicorn", Page: page + "#gunicorn", Ready: notify, Signal: "TERM",
			Advice: "the sync worker, its default, loses nothing; gthread and the asynchronous workers, also those for ASGI, " +
				"close the connections that they keep when they stop: have a proxy such as nginx in front",
			command: command{
				names: []string{"gunicorn", "gunicorn3", "gunicorn_paster"}, bind: []string{"--bind", "-b"},
				env: []string{"PORT"}, address: "127.0.0.1:8000",
				config: []string{"--config", "-c"}, file: "gunicorn.conf.py", listens: gunicornBind, takes: true,
				grace: "--graceful-timeout", stop: 30,
				drop: []banned{{"--daemon -D", false, foreground}, {"--pid -p", true, ownPID}, {"--reload", false, reloads}},
			},
		},
		{
			Name: "waitress", Page: page, Ready: accept,
			command: command{names: []string{"waitress-serve"}, bind: []string{"--listen"}, host: []string{"--host"},
				port: []string{"--port"}, address: "0.0.0.0:8080"},
		},
		{
			Name: "uWSGI", Page: page + "#uwsgi", Ready: notify, Signal: "INT", Untold: ownProtocol,
			Advice: "its http-socket closes each connection after one answer without announcing it: write add-header = " +
				"Connection: close. INT stops it at once, when its " +
				"requests are answered; to let it finish them itself, write hook-master-start = unix_signal:15 " +
				"gracefully_kill_them_all, and stop.signal = \"TERM\"",
			command: command{
				names: []string{"uwsgi", "uwsgi-core", "uwsgi_python3"},
				bind:  []string{"--http-socket", "--http", "--socket", "-s", "--uwsgi-socket"},
				path:  []string{"{option}", "fd://{fd}"}, grace: "--worker-reload-mercy",
				drop: []banned{{"--daemonize -d --daemonize2", true, foreground},
					{"--pidfile --pidfile2 --safe-pidfile", true, ownPID}, {"--py-autoreload", true, reloads}},
			},
		},
	}
}

// pythonASGI are the servers of ASGI applications.
func pythonASGI() []*Product {
	return []*Product{
		asgi("uvicorn", command{
			names: []string{"uvicorn"}, host: []string{"--host"}, port: []string{"--port"}, bind: []string{"--uds"},
			address: "127.0.0.1:8000",
			path:    []string{"--fd", "{fd}"}, grace: "--timeout-graceful-shutdown", drop: []banned{{"--reload", false,
				reloads}},
		}),
		asgi("FastAPI's command", command{
			names: []string{"fastapi"}, when: first("run", "dev"), host: []string{"--host"}, port: []string{"--port"},
			address: "0.0.0.0:8000",
		}),
		asgi("hypercorn", command{
			names: []string{"hypercorn"}, bind: []string{"--bind", "-b"}, address: "127.0.0.1:8000",
			path: []string{"--bind", "fd://{fd}"},
			drop: []banned{{"--pid -p", true, ownPID}, {"--reload", false, reloads}},
		}),
		asgi("daphne", command{names: []string{"daphne"}, host: []string{"--bind", "-b"}, port: []string{"--port", "-p"},
			address: "127.0.0.1:8000"}),
		asgi("granian", command{names: []string{"granian"}, host: []string{"--host"}, port: []string{"--port"},
			address: "127.0.0.1:8000"}),
	}
}

func ruby() []*Product {
	const queue = "write queue_requests false in puma's configuration, and more threads: with the queue puma drops " +
		"what is in it when it stops"
	puma := command{
		names: []string{"puma"}, bind: []string{"--bind", "-b"}, port: []string{"--port", "-p"}, env: []string{"PORT"},
		address: "0.0.0.0:9292",
		config:  []string{"--config", "-C"}, file: "config/puma.rb", listens: pumaBind, takes: true,
		drop: []banned{{"--daemon -d", false, foreground}, {"--pidfile", true, ownPID}},
	}
	rails := puma
	rails.names, rails.address, rails.takes = []string{"rails"}, "0.0.0.0:3000", false
	rails.when = first("server", "s")
	rails.bind, rails.host = nil, []string{"--binding", "-b"}
	rails.drop = []banned{{"--pid -P", true, ownPID}, {"--daemon -d", false, foreground}}
	rails.needs = []need{{[]string{"--pid", "tmp/pids/server.{generation}.{slot}.pid"}, "", ownFile}}
	return []*Product{
		{Name: "Puma", Page: page + "#puma", Ready: accept, Signal: "TERM", Advice: queue, command: puma},
		{Name: "Rails", Page: page + "#puma", Ready: accept, Signal: "TERM", Advice: queue, command: rails},
		{
			Name: "unicorn", Page: page + "#unicorn", Ready: accept, Signal: "QUIT",
			Advice: "remove pid from unicorn's own file: it does not start beside another one that has it",
			command: command{
				names: []string{"unicorn", "unicorn_rails"}, bind: []string{"--listen", "-l"}, port: []string{"--port", "-p"},
				takes: true,
				host:  []string{"--host", "-o"}, address: "0.0.0.0:8080", config: []string{"--config-file", "-c"},
				listens: unicornListen,
				drop:    []banned{{"--daemonize -D", false, foreground}},
			},
		},
		{
			Name: "rackup", Page: page, Ready: accept, Advice: "for real traffic use puma",
			command: command{names: []string{"rackup"}, host: []string{"--host", "-o"}, port: []string{"--port", "-p"},
				env: []string{"PORT"}, address: "127.0.0.1:9292",
				drop: []banned{{"--daemonize -D", false, foreground}, {"--pid -P", true, ownPID}}},
		},
	}
}

func perl() []*Product {
	const perlPage = page + "#starlet-and-starman"
	plack := command{
		bind: []string{"--listen", "-l", "--socket", "-S"}, host: []string{"--host", "-o"}, port: []string{"--port", "-p"},
		address: "0.0.0.0:5000", takes: true,
		drop: []banned{{"--daemonize -D", false, foreground}, {"--pid", true, ownPID}, {"--reload -r", false, reloads}},
	}
	starman, starlet, plackup, single := plack, plack, plack, plack
	starman.names = []string{"starman"}
	starman.needs = []need{{[]string{"--disable-keepalive"}, "",
		"a worker serves a connection as long as its client uses it, and then closes it under a request"}}
	plackup.names, plackup.needs, plackup.when = []string{"plackup"}, starman.needs, optionIs("-s", "--server", "Starman")
	starlet.names, starlet.when = []string{"plackup"}, optionIs("-s", "--server", "Starlet", "Gazelle")
	single.names, single.takes = []string{"plackup"}, false
	return []*Product{
		{Name: "Starman", Page: perlPage, Ready: accept, Signal: "QUIT", command: starman},
		{Name: "Starman", Page: perlPage, Ready: accept, Signal: "QUIT", command: plackup},
		{Name: "Starlet", Page: perlPage, Ready: accept, Signal: "TERM", command: starlet},
		{Name: "plackup's development server", Page: page, Ready: accept,
			Advice: "it serves one client at a time: use Starlet or Starman", command: single},
	}
}

// web are web servers and proxies, which read all in their own files.
func web() []*Product {
	return []*Product{
		{
			Name: "nginx", Page: page + "#nginx", Ready: accept, Signal: "QUIT",
			Advice: "write keepalive_timeout 0 in nginx.conf (since 1.27.4: keepalive_min_timeout 5s), and remove daemon and " +
				"pid there: daemon off; as an argument of -g " +
				"keeps it in the foreground",
			command: command{names: []string{"nginx"}, config: []string{"-c"}, file: "/etc/nginx/nginx.conf",
				listens: nginxListen, includes: nginxInclude,
				after: nginxDirectives},
		},
		{
			Name: "PHP-FPM", Page: page + "#php-fpm", Ready: notify, Signal: "QUIT",
			Advice: "write process_control_timeout = 25s in php-fpm.conf, and listen = HOST:PORT there: PHP-FPM removes the " +
				"path of a unix socket when it ends",
			command: command{
				names: []string{"php-fpm", "php-fpm[0-9]*"}, config: []string{"--fpm-config", "-y"}, listens: fpmListen,
				includes: fpmInclude,
				drop:     []banned{{"--daemonize -D", false, foreground}, {"--pid -g", true, ownPID}},
				needs:    []need{{[]string{"--nodaemonize"}, "-F", foreground}},
			},
		},
		{
			Name: "lighttpd", Page: page + "#lighttpd", Ready: accept, Signal: "INT",
			Advice: "write server.max-keep-alive-requests = 0",
			command: command{names: []string{"lighttpd"}, config: []string{"-f"}, file: "/etc/lighttpd/lighttpd.conf",
				listens: lighttpdPort,
				needs:   []need{{[]string{"-D"}, "", foreground}}},
		},
		{
			Name: "Apache", Page: page + "#servers-that-open-their-own-port", Ready: accept, Signal: "WINCH",
			Advice: "KeepAlive Off, as Apache closes keep-alive connections when it stops",
			command: command{
				names: []string{"apache2", "httpd"}, config: []string{"-f"}, file: "/etc/apache2/apache2.conf",
				listens: apacheListen, includes: apacheInclude,
				drop: []banned{{"-k", true, foreground}}, needs: []need{
					{[]string{"-D", "FOREGROUND"}, "FOREGROUND", foreground},
					{[]string{"-c", "PidFile /run/apache2.{generation}.{slot}.pid"}, "PidFile", ownFile},
				},
			},
		},
	}
}

// proxies are web servers that are mostly put in front of others.
func proxies() []*Product {
	const idleClose = "write option idle-close-on-response, and hard-stop-after 25s"
	haproxy := command{names: []string{"haproxy"}, config: []string{"-f"}, file: "/etc/haproxy/haproxy.cfg",
		listens: haproxyBind,
		drop:    []banned{{"-D", false, foreground}, {"-p", true, ownPID}}}
	master := haproxy
	master.when = named("-Ws")
	return []*Product{
		{Name: "HAProxy", Page: page + "#haproxy", Ready: notify, Signal: "USR1", Advice: idleClose, command: master},
		{Name: "HAProxy", Page: page + "#haproxy", Ready: accept, Signal: "USR1", Advice: idleClose, command: haproxy},
		{
			Name: "Caddy", Page: page + "#caddy", Ready: notify, Signal: "TERM",
			Advice: "write shutdown_delay 5s, grace_period 25s, and a header Connection: close while it shuts down, as in " +
				"examples/servers/caddy/Caddyfile; " +
				"and admin off, or a listener for localhost:2019",
			command: command{names: []string{"caddy"}, when: first("run", "start", "file-server", "reverse-proxy", "respond"),
				bind: []string{"--listen", "--from"}, config: []string{"--config", "-c"}, file: "Caddyfile", listens: caddySite},
		},
	}
}

// stores keep data, which two at the same time would write, or drop.
func stores() []*Product {
	const data = "two at the same time would write the same data"
	return []*Product{
		{
			Name: "redis", Page: page, Ready: accept, Single: data,
			command: command{names: []string{"redis-server", "valkey-server"}, port: []string{"--port"}, config: []string{""},
				listens: redisPort, address: "0.0.0.0:6379"},
		},
		{
			Name: "a database", Page: page, Ready: accept, Single: data,
			command: command{names: strings.Fields(
				"postgres mysqld mariadbd mongod etcd influxd prometheus nats-server rabbitmq-server"), program: true},
		},
		{Name: "memcached", Page: page, Ready: accept, command: command{
			names: []string{"memcached"}, port: []string{"-p", "--port"}, host: []string{"-l", "--listen"},
			address: "0.0.0.0:11211",
			drop:    []banned{{"-d --daemon", false, foreground}, {"-P --pidfile", true, ownPID}}}},
	}
}

// runtimes are languages and frameworks whose programs listen themselves.
func runtimes() []*Product {
	const node = "to lose no request on keep-alive connections either, let it answer with Connection: close after " +
		"TERM, and exit with the last connection: " +
		"server.close() alone closes idle connections"
	const viteFiles = "vite.config.js vite.config.ts vite.config.mjs vite.config.mts"
	framework := func(name string, c command) *Product {
		c.env = []string{"PORT"}
		return &Product{Name: name, Page: page + "#node", Ready: accept, command: c}
	}
	return []*Product{
		framework("Next.js", command{names: []string{"next", "next-server"}, when: first("start", "dev"),
			port: []string{"--port", "-p"}, host: []string{"--hostname", "-H"},
			address: "0.0.0.0:3000"}),
		framework("Nuxt", command{names: []string{"nuxt", "nuxi"}, when: first("start", "preview", "dev"),
			port: []string{"--port", "-p"}, host: []string{"--host", "-h"}, address: "0.0.0.0:3000"}),
		framework("Vite", command{names: []string{"vite"}, when: first("preview"), port: []string{"--port"},
			file: viteFiles, listens: vitePort, address: "localhost:4173"}),
		framework("Vite", command{names: []string{"vite"}, port: []string{"--port"}, file: viteFiles, listens: vitePort,
			address: "localhost:5173"}),
		framework("http-server", command{names: []string{"http-server"}, port: []string{"-p", "--port"},
			host: []string{"-a"}, address: "0.0.0.0:8080"}),
		{
			Name: "Node", Page: page + "#node", Ready: accept, Advice: node,
			command: command{names: []string{"node", "nodejs", "node[0-9]*"}, when: runsFile, env: []string{"PORT"},
				program: true},
		},
		{
			Name: "Java", Page: page + "#java", Ready: accept,
			command: command{names: []string{"java"}, over: []string{"SERVER_PORT"}, env: []string{"PORT"}, program: true,
				listens: springPort,
				file: "application.properties application.yml config/application.properties config/application.yml " +
					"src/main/resources/application.properties " +
					"src/main/resources/application.yml src/main/resources/application.yaml"},
		},
	}
}

// development are servers that come with a language or a framework, and what to use for real traffic.
func development() []*Product {
	serves := func(name, instead string, c command) *Product {
		return &Product{Name: name, Page: page + "#servers-that-open-their-own-port", Ready: accept, Advice: instead,
			command: c}
	}
	return []*Product{
		{
			Name: "php-cgi", Page: page + "#fastcgi-on-fd-0", Ready: accept, Signal: "TERM",
			Advice: "set workers to the number of processes, and remove PHP_FCGI_CHILDREN: with it php-cgi ends its " +
				"processes in the middle of a request",
			command: command{names: []string{"php-cgi", "php-cgi[0-9]*"}, bind: []string{"-b"}},
		},
		serves("Python's http.server", "for real traffic serve the files with nginx or Caddy",
			command{names: []string{"http.server"}, host: []string{"--bind", "-b"}, plain: true, address: "0.0.0.0:8000"}),
		serves("Flask's development server", "for real traffic use gunicorn: command = [\"gunicorn\", \"MODULE:app\"]",
			command{
				names: []string{"flask"}, when: named("run"), host: []string{"--host", "-h"}, port: []string{"--port", "-p"},
				env: []string{"FLASK_RUN_PORT"}, address: "127.0.0.1:5000"}),
		serves("Django's development server", "for real traffic use gunicorn: command = [\"gunicorn\", \"PROJECT.wsgi\"]",
			command{
				names: []string{"manage.py", "django-admin"}, when: named("runserver", "runserver_plus"), plain: true,
				address: "127.0.0.1:8000"}),
		serves("PHP's development server", "for real traffic use PHP-FPM", command{
			names: []string{"artisan"}, when: named("serve"), host: []string{"--host"}, port: []string{"--port"},
			env: []string{"SERVER_PORT"}, address: "127.0.0.1:8000"}),
		serves("PHP's development server", "for real traffic use PHP-FPM",
			command{names: []string{"php", "php[0-9]*"}, when: named("-S"), bind: []string{"-S"}}),
		{
			Name: "a script of package.json", Page: page + "#node", Ready: accept, Group: true,
			command: command{names: []string{"npm", "yarn", "pnpm"}, when: named("start", "run", "dev", "serve", "preview")},
		},
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

// runsFile reports whether node is given a program, not -e or --version.
func runsFile(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") }) &&
		!named("-e", "-p", "--eval", "--print")(args)
}

// nginxOwn are the directives that nginxDirectives sets.
var nginxOwn = pattern.Lazy(`(?m)(?:^|[ \t;])(?:daemon|pid)\s+[^;]*;?`)

// nginxDirectives keeps nginx in the foreground, and gives each generation a pid file. nginx allows a directive only
// once, so those in its own file stay there.
func nginxDirectives(words []string, file string) []string {
	directives, pid, kept := "", "/run/nginx", []string{}
	for i := 0; i < len(words); i++ {
		if words[i] == "-g" && i+1 < len(words) {
			i++
			if directives = strings.TrimSpace(nginxOwn().ReplaceAllString(words[i], "")); directives != "" {
				directives = strings.TrimSuffix(directives, ";") + ";"
			}
			continue
		} else if words[i] == "-p" {
			pid = "nginx" // relative to the prefix
		}
		kept = append(kept, words[i])
	}
	own := nginxOwn().FindAllString(file, -1)
	for _, d := range [][2]string{{"daemon", "off"}, {"pid", pid + ".{generation}.{slot}.pid"}} {
		if !slices.ContainsFunc(own, func(have string) bool {
			return strings.HasPrefix(strings.TrimLeft(have, " \t;"),
				d[0])
		}) {
			directives += " " + d[0] + " " + d[1] + ";"
		}
	}
	if directives = strings.TrimSpace(directives); directives != "" {
		kept = append(kept, "-g", directives)
	}
	return kept
}

// jobs are programs that take work from a queue or a clock, and listen nowhere: their name, and a word that must
// follow, "" for none.
var jobs = [][2]string{
	{"celery", ""}, {"sidekiq", ""}, {"sidekiqswarm", ""}, {"rq", ""}, {"rqworker", ""}, {"rqscheduler", ""},
	{"dramatiq", ""}, {"huey_consumer", ""},
	{"huey_consumer.py", ""}, {"arq", ""}, {"taskiq", ""}, {"procrastinate", ""}, {"resque", ""}, {"resque-pool", ""},
	{"good_job", ""},
	{"shoryuken", ""}, {"solid_queue", ""}, {"que", ""}, {"sneakers", ""}, {"faktory_worker", ""}, {"delayed_job", ""},
	{"jobs", "start"},
	{"rake", "jobs:work"}, {"rake", "resque:work"}, {"rake", "resque:scheduler"}, {"rake", "solid_queue:start"},
	{"rake", "sneakers:run"},
	{"rails", "jobs:work"}, {"rails", "resque:work"}, {"rails", "solid_queue:start"}, {"rails", "runner"},
	{"artisan", "queue:work"}, {"artisan", "queue:listen"}, {"artisan", "horizon"}, {"artisan", "schedule:work"},
	{"artisan", "pulse:work"},
	{"console", "messenger:consume"}, {"console", "enqueue:consume"},
	{"sleep", ""}, {"tail", ""}, {"cron", ""}, {"crond", ""}, {"supercronic", ""},
}

// djangoServers are the commands of manage.py that listen; every other is a job.
var djangoServers = []string{"runserver", "runserver_plus", "runsslserver", "testserver", "daphne"}

// Schedules reports whether a command starts jobs by a clock, so that two of it at the same time would start each job
// twice.
func Schedules(argv []string) bool {
	words := strings.Fields("cron crond supercronic beat -B --beat rqscheduler resque:scheduler schedule:work")
	return Works(argv) && slices.ContainsFunc(argv, func(word string) bool {
		return slices.Contains(words,
			path.Base(word))
	})
}

// Works reports whether a command starts a program that takes work from a queue, so that it has no listener. Wrappers
// and interpreters do not hide it.
func Works(argv []string) bool {
	if script := scriptOf(argv); script != nil {
		return Works(script)
	}
	for i, word := range argv {
		if strings.HasPrefix(word, "-") && word != "-m" {
			continue
		}
		after := ""
		if i+1 < len(argv) {
			after = argv[i+1]
		}
		if path.Base(word) == "manage.py" && after != "" && !strings.HasPrefix(after, "-") &&
			!slices.Contains(djangoServers, after) {
			return true
		}
		for _, job := range jobs {
			if job[0] == path.Base(word) && (job[1] == "" && i <= unwrap(argv) || job[1] != "" && job[1] == after) {
				return true
			}
		}
	}
	return false
}

package servers

import (
	"path"
	"slices"
	"strings"
)

// jobs are programs that take work from a queue or a clock, and listen nowhere: their name, and a word that must follow, "" for none.
var jobs = [][2]string{
	{"celery", ""}, {"sidekiq", ""}, {"sidekiqswarm", ""}, {"rq", ""}, {"rqworker", ""}, {"dramatiq", ""}, {"huey_consumer", ""}, {"huey_consumer.py", ""}, {"arq", ""},
	{"taskiq", ""}, {"procrastinate", ""}, {"resque", ""}, {"resque-pool", ""}, {"good_job", ""}, {"shoryuken", ""}, {"solid_queue", ""}, {"que", ""}, {"sneakers", ""},
	{"faktory_worker", ""}, {"delayed_job", ""}, {"jobs", "start"},
	{"rake", "jobs:work"}, {"rake", "resque:work"}, {"rake", "resque:scheduler"}, {"rake", "solid_queue:start"}, {"rake", "sneakers:run"},
	{"rails", "jobs:work"}, {"rails", "resque:work"}, {"rails", "solid_queue:start"}, {"rails", "runner"},
	{"artisan", "queue:work"}, {"artisan", "queue:listen"}, {"artisan", "horizon"}, {"artisan", "schedule:work"}, {"artisan", "pulse:work"},
	{"console", "messenger:consume"}, {"console", "enqueue:consume"},
}

// djangoServers are the commands of manage.py that listen; every other is a job.
var djangoServers = []string{"runserver", "runserver_plus", "runsslserver", "testserver", "daphne"}

// Schedules reports whether a command starts jobs by a clock, so that two of it at the same time would start each job twice.
func Schedules(argv []string) bool {
	return Works(argv) && slices.ContainsFunc(argv, func(word string) bool {
		return slices.Contains([]string{"beat", "-B", "--beat", "rqscheduler", "resque:scheduler", "schedule:work"}, word)
	})
}

// Works reports whether a command starts a program that takes work from a queue, so that it has no listener. Wrappers and interpreters do not
// hide it.
func Works(argv []string) bool {
	if at := unwrap(argv); at < len(argv) && slices.Contains(shells, path.Base(argv[at])) {
		if script := scriptOf(argv[at+1:]); script != nil {
			return Works(script)
		}
	}
	for i, word := range argv {
		if strings.HasPrefix(word, "-") && word != "-m" {
			continue
		}
		after := ""
		if i+1 < len(argv) {
			after = argv[i+1]
		}
		if path.Base(word) == "manage.py" && after != "" && !strings.HasPrefix(after, "-") && !slices.Contains(djangoServers, after) {
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

// The names of options with a port, and with a whole address, without their dashes.
var (
	portOptions    = []string{"port", "p", "http-port", "http.port", "server.port", "Dserver.port", "Dhttp.port", "Dquarkus.http.port", "web.port", "listen-port", "PORT"}
	addressOptions = []string{"listen", "addr", "address", "bind", "b", "http", "http-addr", "http.addr", "listen-address", "web.listen-address", "l", "urls", "ADDR", "ADDRESS"}
	hostOptions    = []string{"host", "H", "hostname", "server.address", "Dserver.address", "HOST", "HOSTNAME"}
)

// ListensAt returns the address that a command of an unknown program names, such as ":8099" of ./server --port 8099; "" if it names none.
func ListensAt(argv []string) string {
	if at := unwrap(argv); at < len(argv) && slices.Contains(shells, path.Base(argv[at])) {
		if script := scriptWords(argv[at+1:]); script != nil {
			argv = script
		}
	}
	host, port := "", ""
	for i, word := range argv {
		name, value, joined := strings.Cut(word, "=")
		bare := strings.TrimLeft(name, "-")
		if bare == name && (!joined || strings.ToUpper(name) != name) {
			continue // not an option, and not a variable
		}
		if !joined && i+1 < len(argv) {
			value = argv[i+1]
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
	if host == "" || host == "localhost" {
		host = "127.0.0.1"
	}
	return join(host, port)
}

// scriptWords returns all words of `sh -c SCRIPT`, with the variables that it sets.
func scriptWords(args []string) []string {
	if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") && strings.HasSuffix(a, "c") }); i >= 0 && i+1 < len(args) {
		return strings.Fields(strings.NewReplacer("'", "", `"`, "", ";", " ").Replace(args[i+1]))
	}
	return nil
}

func isPort(s string) bool { return isNumber(s) && len(s) <= 5 && s[0] != '-' && s[0] != '0' }

// ProgramOf returns the word of a command that names a program of the project itself, such as ./server or bin/web; "" if the command is a
// server, an interpreter or a wrapper, whose name says nothing about the project.
func ProgramOf(argv []string) string {
	at := unwrap(argv)
	if at >= len(argv) || at > 0 && !strings.Contains(argv[at], "/") {
		return ""
	}
	name := path.Base(argv[at])
	_, _, wraps := wrapper(name)
	generic := []string{"node", "nodejs", "java", "php", "deno", "bun", "dotnet", "npm", "yarn", "pnpm", "rake", "mix", "elixir", "go", "cargo", "mvn", "gradle", "gradlew", "make"}
	_, known := Recognize(argv)
	if known || wraps || interpreter(name) || Works(argv) || slices.Contains(generic, name) || slices.Contains(shells, name) {
		return ""
	}
	return argv[at]
}

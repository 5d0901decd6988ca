package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/meant"
	"example.org/supervisord/socket"
)

// bad is an invalid file (or several, separated by lines "-- name --") and all expected messages.
type bad struct{ name, text, want string }

const web = "[program.web]\ncommand = [\"./web\"]\n"

var badFiles = []bad{
	{"empty", "", `c.toml: there is no program: write a table [program.NAME]`},
	{"typos of required keys", "[program.web]\ncomand = [\"a\"]\nlisten = [{ adress = \":80\" }]\n" +
		"stdout = \"capture\"\n[program.web.log]\nflie = \"/x\"\n" +
		"[program.web.ready]\nmethod = \"http\"\nulr = \"http://127.0.0.1:1/\"\n[program.web.health]\nmetod = \"http\"\n" +
		"url = \"http://127.0.0.1:1/\"\n",
		`c.toml:2: program.web.comand: unknown key: did you mean command?
c.toml:3: program.web.listen[0].adress: unknown key: did you mean address?
c.toml:6: program.web.log.flie: unknown key: did you mean file?
c.toml:9: program.web.ready.ulr: unknown key: did you mean url?
c.toml:11: program.web.health.metod: unknown key: did you mean method?`},
	{"no program where files are included from a directory that is missing",
		"[supervisor]\ninclude = [\"conf.d/*.toml\"]\n",
		`c.toml:2: supervisor.include: there is no program: write a table [program.NAME] into a file that matches ` +
			`conf.d/*.toml`},
	{"Python's Supervisor", "; managed by ansible\n\n[supervisord]\nlogfile=/var/log/supervisord.log ; (main log)\n",
		`c.toml:3: this is the configuration of Python's Supervisor, which is another program: convert it with: ` +
			`supervisord convert c.toml`},
	{"Python's Supervisor that happens to be TOML", "[supervisord]\nnodaemon=true\n",
		`c.toml:1: this is the configuration of Python's Supervisor, which is another program: convert it with: ` +
			`supervisord convert c.toml`},
	{"a program of Python's Supervisor", "  [program:cat]\ncommand=/bin/cat\n",
		`c.toml:1: this is the configuration of Python's Supervisor, which is another program: convert it with: ` +
			`supervisord convert c.toml`},
	{"an included file of Python's Supervisor",
		"[supervisor]\ninclude = [\"x.conf\"]\n-- x.conf --\n[program:cat]\ncommand=/bin/cat\n",
		`x.conf:1: this is the configuration of Python's Supervisor, which is another program: convert it with: ` +
			`supervisord convert x.conf`},
	{"circus", "[circus]\nendpoint = tcp://127.0.0.1:5555\n",
		`c.toml:1: this is the configuration of circus, which is another program: write a [program.NAME] table for each ` +
			`watcher: docs/configuration.md has the keys`},
	{"syntax", "[program.web]\ncommand = ./web\n",
		`c.toml:2: program.web.command: not valid TOML: floats must start with a digit, not '.': write strings in quotes: "…"`},
	{"defined twice in one file", web + "[program.web]\n",
		`c.toml:3: program: not valid TOML: Key 'program.web' has already been defined: write it once`},
	{"unknown tables", "[supervisr]\n[program.web]\ncommand = [\"x\"]\n",
		`c.toml:1: supervisr: unknown key: did you mean supervisor?`},
	{"unknown keys", web + "worker = 1\nWorkers = 2\nxyzzy = 3\n[program.web.ready]\ntimout = \"1s\"\n",
		`c.toml:3: program.web.worker: unknown key: did you mean workers?
c.toml:4: program.web.Workers: unknown key: keys are written with small letters and _: workers = 2
c.toml:5: program.web.xyzzy: unknown key: known here are after, bind, command, compat, dialect, directory, drain, environment, environment_file, group, health, hooks, limits, listen, log, ready, reload, restart, stderr, stdout, stop, success_exit_codes, user, watch, workers
c.toml:7: program.web.ready.timout: unknown key: did you mean timeout?`},
	{"keys that differ only in case", web + "COMMAND = [\"y\"]\n",
		`c.toml:3: program.web.COMMAND: unknown key: keys are written with small letters and _: command = ["y"]`},
	{"durations", web + "[program.web.ready]\ntimeout = 30\n[program.web.stop]\ntimeout = \"30\"\n" +
		"[program.web.reload]\nsoak = \"-1s\"\n[program.web.restart]\nstable_after = \"9000h\"",
		`c.toml:4: program.web.ready.timeout: is a number without a unit: write "30s"
c.toml:6: program.web.stop.timeout: "30" is not a duration: did you mean "30s"?
c.toml:8: program.web.reload.soak: "-1s" is out of range: write a duration from "0s" to "8760h"
c.toml:10: program.web.restart.stable_after: "9000h" is out of range: write a duration from "0s" to "8760h"`},
	{"status files", web + "compat.status_file = \"s\"\n[program.other]\ncommand = [\"x\"]\ncompat.status_file = \"./s\"",
		`c.toml:3: program.web.compat.status_file: s is already the file of program.other (c.toml:6): give each program a ` +
			`file of its own`},
	{"waits without end", web + "[program.web.stop]\n" +
		"steps = [{ signal = \"QUIT\", timeout = \"infinity\" }, { signal = \"TERM\", timeout = \"infinity\" }]\n" +
		"[program.web.reload]\nmax_draining = -1\ndraining_full = \"kill\"\n[program.web.compat]\nreload_signal = \"X\"",
		`c.toml:4: program.web.stop.steps[0].timeout: has no end: the next step would never come: write it in the last step only
c.toml:6: program.web.reload.max_draining: -1 is out of range: write a number from 0 to 1000
c.toml:7: program.web.reload.draining_full: unknown key: remove it: the next reload waits until one of max_draining generations has gone; ` + "`supervisord kill web --generation N`" + ` ends one
c.toml:9: program.web.compat.reload_signal: "X" is not a signal: write its name, such as "TERM", "QUIT" or "USR1"`},
	{"workers with a socket each that end for good",
		web + "[[program.web.listen]]\naddress = \":1\"\nper_slot = true\n[program.web.restart]\nwhen = \"on-failure\"",
		`c.toml:7: program.web.restart.when: "on-failure" does not go with per_slot: nothing would answer the connections ` +
			`of a worker that is not replaced: write "always", or remove per_slot from the listeners`},
	{"what follows a failure", web +
		"[program.web.compat]\nretry = \"1ms\"\ngeneration = \"next\"\nstarter_names = { x = \"8080\" }\n" +
		"[program.web.reload]\nevery = \"0s\"\n[program.web.restart]\nbudget = 101",
		`c.toml:4: program.web.compat.retry: "1ms" is out of range: write a duration from "10ms" to "8760h"
c.toml:5: program.web.compat.generation: "next" is not known: did you mean "new"? known are "same" and "new"
c.toml:6: program.web.compat.starter_names.x: "x" names no listener: write [[program.web.listen]]
c.toml:8: program.web.reload.every: "0s" is out of range: write a duration from "1s" to "8760h"
c.toml:10: program.web.restart.budget: 101 is out of range: write a number from 0 to 100`},
	{"descriptors", web + "[[program.web.listen]]\naddress = \":1\"\nfd = 2\n[[program.web.listen]]\naddress = \":2\"\n" +
		"fd = 0\n[[program.web.listen]]\naddress = \":3\"\nfd = 0\n[program.web.compat]\n" +
		"starter_names = { \":3\" = \"a;b\", x = \"1\" }",
		`c.toml:5: program.web.listen[0].fd: fd 2 cannot be a listener's: write 0, which is stdin, or 3 to 1023
c.toml:11: program.web.listen[2].fd: 0 is already that of the listener in line 6: give each listener of a program a descriptor of its own
c.toml:13: program.web.compat.starter_names.":3": "a;b" cannot be passed on: leave out control characters, ';' and '='
c.toml:13: program.web.compat.starter_names.x: "x" names no listener: the listeners are :1, :2, :3`},
	{"words of other programs", web +
		"numprocs = 2\nKillSignal = \"TERM\"\nauto-restart = true\nport = 80\nautostart = true\n[program.b]\ncmd = \"x\"\n" +
		"depends_on = \"web\"",
		`c.toml:3: program.web.numprocs: unknown key: write workers = 2
c.toml:4: program.web.KillSignal: unknown key: write stop.signal = "TERM"
c.toml:5: program.web.auto-restart: unknown key: write restart.when = "always"
c.toml:6: program.web.port: unknown key: write listen = ["127.0.0.1:80"]
c.toml:7: program.web.autostart: unknown key: remove it: every program starts with supervisord; ` + "`supervisord stop` stops one" + `
c.toml:9: program.b.cmd: unknown key: write command = ["x"]
c.toml:10: program.b.depends_on: unknown key: write after = "web"`},
	{"values that are nearly right",
		web + "user = \"roott\"\nlisten = [{ address = \"http://127.0.0.1:80/x\" }]\n[program.web.stop]\n" +
			"signal = \"SIGTREM\"\ntimeout = \"30sec\"\n[program.web.ready]\nmethod = \"notfy\"\ntimeout = \"2 days\"\n" +
			"[program.web.limits]\nmax_memory = \"1G\"",
		`c.toml:3: program.web.user: there is no user "roott": did you mean "root"?
c.toml:4: program.web.listen[0].address: "http://127.0.0.1:80/x" has a scheme: write "127.0.0.1:80"
c.toml:6: program.web.stop.signal: "SIGTREM" is not a signal: did you mean "TERM"?
c.toml:7: program.web.stop.timeout: "30sec" is not a duration: did you mean "30s"?
c.toml:9: program.web.ready.method: "notfy" is not known: did you mean "notify"? known are "notify", "accept", "delay", "http", "tcp" and "exec"
c.toml:10: program.web.ready.timeout: "2 days" is not a duration: did you mean "48h"?
c.toml:12: program.web.limits.max_memory: "1G" is not a size: did you mean "1GiB"?`},
	{"start order", "[program.api]\ncommand = [\"a\"]\nafter = [\"bd\", \"api\", \"cache\", \"cache\"]\n" +
		"[program.cache]\ncommand = [\"a\"]\nafter = \"db\"\n" +
		"[program.db]\ncommand = [\"a\"]\nafter = [\n\"queue\", \"mail\"]\n[program.queue]\ncommand = [\"a\"]\n" +
		"after = [\"cache\"]\npriority = 1\ndepends_on = { cache = { condition = \"service_healthy\" }, db = {} }\n" +
		"[program.mail]\ncommand = [\"a\"]\nafter = [1]",
		`c.toml:3: program.api.after[0]: there is no program "bd": did you mean "db"?
c.toml:3: program.api.after[1]: is the program itself: remove it
c.toml:3: program.api.after[3]: "cache" is named twice: remove one of them
c.toml:6: program.cache.after: none of the programs could ever start: cache is after db is after queue is after cache: remove one of these names from its after
c.toml:14: program.queue.priority: unknown key: remove it, and write after in the programs that need another one, such as after = ["db"]
c.toml:15: program.queue.depends_on: unknown key: write after = ["cache", "db"]
c.toml:18: program.mail.after[0]: is an integer, not a string: write it in quotes`},
	{"start order of one program", web + "after = [\"db\"]",
		`c.toml:3: program.web.after[0]: there is no program "db": remove it: there is no other program`},
	{"a unit of systemd", "# a\n[Unit]\nDescription=x\n",
		`c.toml:2: this is a unit of systemd: convert it with: supervisord convert c.toml`},
	{"Compose", "version: '3'\nservices:\n  web:\n",
		`c.toml:2: this is a file of Docker Compose: convert it with: supervisord convert c.toml`},
	{"YAML", "program:\n  web:\n",
		`c.toml:1: this is YAML, and a configuration is TOML: write [program.NAME] tables with key = value, as in ` +
			`config.toml.example`},
	{"pm2", "module.exports = {\n",
		`c.toml:1: this is JavaScript, such as an ecosystem file of pm2: supervisord convert c.toml says how to convert it`},
	{"JSON", "{\n", `c.toml:1: this is JSON, and a configuration is TOML: write [program.NAME] tables, or if this is ` +
		`pm2's, convert it with: supervisord convert c.toml`},
	{"commands", "[program.a]\ncommand = \"./web -v\"\n[program.b]\ncommand = \"./web | cat\"\n[program.c]\n" +
		"command = []\n[program.d]\ncommand = [\n \"x\",\n 5,\n]\n[program.e]\n[program.f]\ncommand=[\"\"]",
		`c.toml:2: program.a.command: is a string: write command = ["./web", "-v"]
c.toml:4: program.b.command: is a string: write command = ["sh", "-c", "./web | cat"]
c.toml:6: program.c.command: is not an array of words: write the program and its arguments, such as ["./web", "-v"]
c.toml:10: program.d.command[1]: is an integer, not a string: write it in quotes
c.toml:12: program.e: has no command: write such as command = ["./web", "-v"]
c.toml:14: program.f.command[0]: is empty: give it a value, or leave the key out`},
	{"types", "program = 1\n[supervisor]\nwatch = \"yes\"\nlog_level = \"inof\"\npid_file = 1979-05-27\n",
		`c.toml:1: program: is an integer, not a table: write each program as [program.NAME]
c.toml:3: supervisor.watch: is a string, not true or false: write true or false, without quotes
c.toml:4: supervisor.log_level: "inof" is not known: did you mean "info"? known are "debug", "info", "warn" and "error"
c.toml:5: supervisor.pid_file: is a date or time, not a string: write it in quotes`},
	{"more types", web + "workers = \"two\"\nlimits = 5\nlisten = { address = \":80\" }\n" +
		"environment = { A = 1, 2B = \"x\", LISTEN_FDS = \"1\" }\nready = \"notify\"\ndirectory = \"a\\u0000b\"",
		`c.toml:3: program.web.workers: "two" is not a number: write workers = 4, without quotes, or "auto"
c.toml:4: program.web.limits: is an integer, not a table: write it as [program.web.limits]
c.toml:5: program.web.listen: is a table, not an array of tables: write [[program.web.listen]], in double brackets
c.toml:6: program.web.environment.A: is an integer, not a string: write it in quotes: "1"
c.toml:6: program.web.environment.2B: is not a valid variable name: use letters, digits and _, not beginning with a digit
c.toml:6: program.web.environment.LISTEN_FDS: is set by supervisord itself: remove it
c.toml:7: program.web.ready: is a string, not a table: write ready.method = "notify"
c.toml:8: program.web.directory: has a NUL character: remove it`},
	{"ranges", web + "workers = 0\n[program.web.limits]\nnice = 20\noom_score_adj = -1001\nnofile = -1\n" +
		"rlimits.as = \"1XB\"\numask = 27\nnproc = \"5KiB\"\nambient_capabilities = [\"CAP_NET_BINDSERVICE\"]\n" +
		"[program.web.reload]\nmax_draining = -1\n",
		ranges},
	{"health", web + "[program.web.health]\ninterval = \"1s\"\n[program.a]\ncommand = [\"a\"]\n[program.a.health]\n" +
		"watchdog = \"1s\"\nurl = \"http://a/\"\n[program.b]\ncommand = [\"b\"]\n" +
		"health = { method = \"tcp\", url = \"http://a/\" }",
		`c.toml:3: program.web.health: asks for nothing: write method = "http", or watchdog = "30s" for workers that send WATCHDOG=1
c.toml:9: program.a.health.url: does nothing without method: remove it, or write method = "http"
c.toml:12: program.b.health: method "tcp" needs address: write such as address = "unix:/run/b/{pid}.sock"
c.toml:12: program.b.health.url: does nothing with method "tcp": remove it, or write method = "http"`},
	{"logs", web + "log = { file = \"a\", max_size = \"100MB\", max_age = \"1s\" }\n[program.a]\ncommand = [\"a\"]\n" +
		"stderr = \"capture\"\nlog = { file = \"a\" }\n[program.b]\ncommand = [\"b\"]\nstdout = \"capture\"\nlog = {}",
		`c.toml:3: program.web.log: does nothing without a captured stream: write stdout = "capture" or stderr = "capture"
c.toml:3: program.web.log.file: a is already the file of program.a (c.toml:7): give each program a file of its own
c.toml:3: program.web.log.max_size: 100MB cannot be set: write whole MiB, such as "95MiB"
c.toml:3: program.web.log.max_age: unknown key: remove it: a log file is rotated by max_size; for times and compression logrotate(8) renames it and sends USR1
c.toml:11: program.b.log: has no file: write such as file = "/var/log/b.log", or leave the table out`},
	{"limits of supervisord's own",
		web + "limits = { max_memory = \"unlimited\", max_age = 5 }\n[program.a]\ncommand = [\"a\"]\n" +
			"limits = { max_memory = 100 }",
		`c.toml:3: program.web.limits.max_memory: "unlimited" is not a size: write a size such as "512MiB"
c.toml:3: program.web.limits.max_age: is a number without a unit: write "5s"
c.toml:6: program.a.limits.max_memory: 100 is less than any worker needs: write a size such as "512MiB"`},
	{"dialects", web + "dialect = [\"systemd\", \"Systemd\", 5, \"nginx\", \"ruby\", \"systemd\"]\n[program.a]\n" +
		"command = [\"a\"]\ndialect = \"einhorn\"",
		`c.toml:3: program.web.dialect[1]: "Systemd" is not known: did you mean "systemd"?
c.toml:3: program.web.dialect[2]: is an integer, not a string: write it in quotes
c.toml:3: program.web.dialect[3]: "nginx" was removed: write environment = { NGINX = "{fd:NAME};" } with each listener, and nonblock = true in each, instead
c.toml:3: program.web.dialect[4]: "ruby" is not known: known are systemd, start_server
c.toml:3: program.web.dialect[5]: "systemd" is listed twice: remove one
c.toml:6: program.a.dialect: "einhorn" was removed: remove it: let the worker take its sockets from LISTEN_FDS, and report READY=1 to NOTIFY_SOCKET`},
	{"accept", web + "ready.method = \"accept\"\nready.interval = \"1s\"\nhealth = { method = \"accept\" }\n" +
		"[program.a]\ncommand = [\"a\"]\nhealth = { method = \"accpet\" }",
		`c.toml:3: program.web.ready.method: there is no socket to accept from: write [[program.web.listen]], or another method
c.toml:4: program.web.ready.interval: does nothing with method "accept": remove it, or write method = "http"
c.toml:5: program.web.health.method: "accept" cannot be a health check: it shows only that a worker was ready once, and a busy worker would look unhealthy: write "http", "tcp" or "exec"
c.toml:8: program.a.health.method: "accpet" is not known: write "http", "tcp" or "exec"`},
	{"the number of the readiness",
		web + "ready = { method = \"notify\", fd = 4 }\n" +
			"listen = [{ name = \"x\", address = \":1\" }, { name = \"y\", address = \":2\" }]\n[program.a]\n" +
			"command = [\"a\"]\nready = { method = \"delay\", fd = 3 }\n[program.b]\ncommand = [\"b\"]\n" +
			"ready = { method = \"notify\", fd = 2 }",
		`c.toml:3: program.web.ready.fd: 4 is the number of the listener y: write another one here, or give the listener another one with its key fd
c.toml:7: program.a.ready.fd: does nothing with method "delay": remove it, or write method = "notify"
c.toml:10: program.b.ready.fd: 2 is out of range: write a number from 3 to 1023`},
	{"octal", web + "limits = { umask = \"0o8\" }\n" +
		"listen = [{ address = \"unix:/a\", mode = 0o1777 }, { address = \"unix:/b\", mode = \"0\" }]",
		`c.toml:3: program.web.limits.umask: "0o8" is not an octal number: write it such as "0660"
c.toml:4: program.web.listen[0].mode: 01777 is out of range: write "0000" to "0777"
c.toml:4: program.web.listen[1].mode: lets no one connect: write such as "0660"`},
	{"names of users", web + "user = \"no-such-user\"\ngroup = \"no-such-group\"\n[program.b]\ncommand=[\"b\"]\n" +
		"user = \"4294967295\"",
		`c.toml:3: program.web.user: there is no user "no-such-user": write one that exists, or create it first
c.toml:4: program.web.group: there is no group "no-such-group": write one that exists, or create it first
c.toml:7: program.b.user: 4294967295 is not a user number: write one below 4294967295`},
	{"listeners with the same name",
		web + "[[program.web.listen]]\nname = \"a\"\naddress = \":1\"\n[[program.web.listen]]\nname = \"a\"\n" +
			"address = \":2\"\n",
		`c.toml:6: program.web.listen[1]: the name "a" is already that of the listener in line 3: give each listener of a ` +
			`program a name of its own`},
	{"listeners with the same address",
		web + "listen = [{ address = \":1\" }]\n[program.b]\ncommand = [\"b\"]\n[[program.b.listen]]\nname = \"x\"\n" +
			"address = \":1\"\n",
		`c.toml:3: program.web.listen[0].address: :1 is already the address of program.b.listen[0] (c.toml:8): give each ` +
			`listener an address of its own; a socket belongs to one program`},
	{"listeners with the same address in another spelling",
		web + "listen = [{ address = \"127.0.0.1:1\" }, { address = \"unix:/run/x\" }, { address = \"Example:2\" }]\n" +
			"[program.c]\ncommand = [\"c\"]\n[[program.c.listen]]\naddress = \"localhost:01\"\n[[program.c.listen]]\n" +
			"address = \"unix:/run//x\"\n[[program.c.listen]]\naddress = \"example:02\"\n[[program.c.listen]]\n" +
			"address = \"127.0.0.1:02\"\n",
		`c.toml:3: program.web.listen[0].address: 127.0.0.1:1 overlaps localhost:01, the address of program.c.listen[0] (c.toml:7): give each listener an address of its own; a socket belongs to one program
c.toml:3: program.web.listen[1].address: unix:/run/x overlaps unix:/run//x, the address of program.c.listen[1] (c.toml:9): give each listener an address of its own; a socket belongs to one program
c.toml:3: program.web.listen[2].address: Example:2 overlaps example:02, the address of program.c.listen[2] (c.toml:11): give each listener an address of its own; a socket belongs to one program`},
	{"one listener on every address", web + "listen = [{ address = \":1\" }, { address = \"127.0.0.1:1\" }]\n",
		`c.toml:3: program.web.listen[1].address: 127.0.0.1:1 overlaps :1, the address of program.web.listen[0] ` +
			`(c.toml:3): give each listener an address of its own`},
	{"the address of the page", "[supervisor]\nhttp = \"127.0.0.1:1\"\ncontrol = \"/run/x\"\ninclude = [\"d.toml\"]\n" +
		web + "listen = [{ address = \"localhost:1\" }]\n-- d.toml --\n[program.d]\ncommand = [\"d\"]\n" +
		"listen = [{ address = \"unix:/run/x\" }]\n",
		`c.toml:2: supervisor.http: 127.0.0.1:1 overlaps localhost:1, the address of program.web.listen[0] (c.toml:7): choose another port or path for one of them
d.toml:3: program.d.listen[0].address: unix:/run/x is already the address of supervisor.control (c.toml:3): choose another port or path for one of them`},
	{"when_down", web + "listen = [{ address = \":1\", when_down = \"drop\" }, { address = \":2\", when_down = \"queue " +
		"30\" }, { address = \":3\", when_down = 30 }, { address = \"udp::1\", when_down = \"refuse\" }, { address = " +
		"\"unix:@x\", when_down = \"queue 1s\" }, { address = \"unix:/x\", when_down = \"queue 0s\" }, { address = " +
		"\":4\", when_down = \"queue\" }]\n",
		`c.toml:3: program.web.listen[0].when_down: "drop" is not known: write "queue", "queue 30s" or "refuse"
c.toml:3: program.web.listen[1].when_down: "30" is not a duration: did you mean "30s"?
c.toml:3: program.web.listen[2].when_down: is an integer, not a string: write it in quotes
c.toml:3: program.web.listen[3].when_down: when_down cannot be set for "udp::1": the kernel can refuse connections only for tcp and for unix sockets with a path, so leave it out
c.toml:3: program.web.listen[4].when_down: when_down cannot be set for "unix:@x": the kernel can refuse connections only for tcp and for unix sockets with a path, so leave it out
c.toml:3: program.web.listen[5].when_down: "0s" is out of range: write a duration from "1s" to "8760h"`},
	{"names that cannot travel", web +
		"[[program.web.listen]]\nname = \"a:b\"\naddress = \":1\"\n[[program.web.listen]]\nname = \"" +
		strings.Repeat("x", 256) + "\"\naddress = \":2\"\n[[program.web.listen]]\nname = \"é\"\naddress = \"unix:/a;b\"\n",
		`c.toml:4: program.web.listen[0].name: "a:b" cannot travel to a worker: use ASCII without : and } and control characters (LISTEN_FDNAMES has : between the names)
c.toml:7: program.web.listen[1].name: is too long: a name has at most 255 bytes
c.toml:10: program.web.listen[2].name: "é" cannot travel to a worker: use ASCII without : and } and control characters (LISTEN_FDNAMES has : between the names)
c.toml:11: program.web.listen[2].address: the path "/a;b" has a character that cannot be passed on: leave out control characters, ';' and '='`},
	{"addresses", web + "[[program.web.listen]]\n[[program.web.listen]]\naddress = \"8080\"\n",
		`c.toml:3: program.web.listen[0]: has no address: write such as address = "127.0.0.1:8080"
c.toml:5: program.web.listen[1].address: "8080" has no host: write ":8080" for every interface, or "127.0.0.1:8080" for this machine only`},
	{"a port as an array", "[program.web]\ncommand = [\"x\"]\nlisten = [8080]\n",
		`c.toml:3: program.web.listen[0]: is a number, not an address: write ":8080" for every interface, or ` +
			`"127.0.0.1:8080" for this machine only`},
	{"a port as a number", "[program.web]\ncommand = [\"x\"]\nlisten = 8080\n",
		`c.toml:3: program.web.listen: is a number, not an address: write ":8080" for every interface, or ` +
			`"127.0.0.1:8080" for this machine only`},
	{"keys of another kind of socket",
		web + "[[program.web.listen]]\naddress = \"unix:/a\"\nper_slot = true\nsocket.keep_alive = \"5s\"\n" +
			"[[program.web.listen]]\naddress = \"udp::1\"\nbacklog = 5\n[[program.web.listen]]\naddress = \"127.0.0.1:1\"\n" +
			"mode = \"0600\"\nsocket.ipv6_only = true\n",
		`c.toml:5: program.web.listen[0].per_slot: per_slot cannot be set for "unix:/a": it is for tcp, so leave it out
c.toml:6: program.web.listen[0].socket.keep_alive: keep_alive cannot be set for "unix:/a": it is for tcp, so leave it out
c.toml:9: program.web.listen[1].backlog: backlog cannot be set for "udp::1": udp has none, so leave it out
c.toml:12: program.web.listen[2].mode: mode cannot be set for "127.0.0.1:1": it is for unix sockets with a path, so leave it out
c.toml:13: program.web.listen[2].socket.ipv6_only: ipv6_only cannot be set for "127.0.0.1:1": it is for IPv6, so leave it out`},
	{"options against each other",
		web + "[[program.web.listen]]\naddress = \":1\"\nper_slot = true\nsocket.reuse_port = true\n" +
			"socket.defer_accept = \"1500ms\"\n",
		`c.toml:6: program.web.listen[0].socket.reuse_port: reuse_port and per_slot are both set: set one: a socket for each slot cannot be shared with other processes as well
c.toml:7: program.web.listen[0].socket.defer_accept: 1.5s cannot be set: write whole seconds, from "1s" to "1h"`},
	{"per_slot of a shared listener",
		web + "[[program.web.listen]]\naddress = \":1\"\nper_slot = true\nhandover = \"share\"\n",
		`c.toml:5: program.web.listen[0].per_slot: needs sockets of its own for each generation, and they share the ` +
			`listener: handover = "share": remove per_slot, or write handover = "steer"`},
	{"per_slot with stop-first", web +
		"reload.strategy = \"stop-first\"\n[[program.web.listen]]\naddress = \":1\"\nper_slot = true\n",
		`c.toml:6: program.web.listen[0].per_slot: needs sockets of its own for each generation, and they share the ` +
			`listener: with strategy "stop-first" one generation ends before the next one begins: remove per_slot, or write ` +
			`strategy = "all"`},
	{"per_slot against reuse_port",
		web + "[[program.web.listen]]\naddress = \":1\"\nper_slot = true\nsocket.reuse_port = true\n",
		`c.toml:6: program.web.listen[0].socket.reuse_port: reuse_port and per_slot are both set: set one: a socket for ` +
			`each slot cannot be shared with other processes as well`},
	{"keys of another ready method",
		web + "[program.web.ready]\nmethod = \"notify\"\ndelay = \"1s\"\nurl = \"http://x/\"\n[program.b]\n" +
			"command=[\"b\"]\n[program.b.ready]\nmethod = \"http\"\n",
		`c.toml:5: program.web.ready.delay: does nothing with method "notify": remove it, or write method = "delay"
c.toml:6: program.web.ready.url: does nothing with method "notify": remove it, or write method = "http"
c.toml:9: program.b.ready: method "http" needs url: write such as url = "unix:/run/b/{pid}.sock:/healthz"`},
	{"probes", web + "ready = { method = \"http\", url = \"127.0.0.1:80\" }\n[program.b]\ncommand=[\"b\"]\n" +
		"ready = { method = \"tcp\", address = \":80\" }\n[program.c]\ncommand=[\"b\"]\n" +
		"ready = { method = \"http\", url = \"http://x/{name}\" }\n[program.d]\ncommand=[\"b\"]\n" +
		"ready = { method = \"exec\", command = \"./ok {pid}\" }",
		`c.toml:3: program.web.ready.url: "127.0.0.1:80" is neither http://host:port/path nor unix:/path/of/socket:/path: write such as "http://{listener:http}/healthz", "http://127.0.0.1:9000/healthz" or "unix:/run/web/{pid}.sock:/healthz"
c.toml:6: program.b.ready.address: ":80" is not an address to connect to: write such as "{listener:http}", "127.0.0.1:9000" or "unix:/run/web/{pid}.sock"
c.toml:9: program.c.ready.url: "http://x/{name}" has an unknown placeholder: known are {pid}, {slot}, {generation} and {listener:NAME}
c.toml:12: program.d.ready.command: is a string: write command = ["./ok", "{pid}"]`},
	{"a delay beyond the timeout", web + "ready = { timeout = \"1s\", delay = \"2s\", method = \"delay\" }\n",
		`c.toml:3: program.web.ready.delay: 2s is longer than the timeout, 1s: no worker would ever be ready: write a ` +
			`delay below the timeout`},
	{"a default delay beyond the timeout", web + "[program.web.ready]\ntimeout = \"500ms\"\n",
		`c.toml:3: program.web.ready.delay: 1s is longer than the timeout, 500ms: no worker would ever be ready: write a ` +
			`delay below the timeout`},
	{"reload", web + "[program.web.reload]\nmax_surge = 2\npreflight_timeout = \"1s\"\n",
		`c.toml:4: program.web.reload.max_surge: does nothing with strategy "all": remove it, or write strategy = "rolling"
c.toml:5: program.web.reload.preflight_timeout: unknown key: remove it: a preflight has as long as ready.timeout`},
	{"stop", web + "[program.web.stop]\nsignal = \"TERMINATE\"\ntimeout = \"1s\"\n" +
		"steps = [{ signal = \"TERM\" }, { signal = 15, timeout = \"1s\" }, 3]\n[program.b]\ncommand=[\"b\"]\n" +
		"stop.steps = []\n",
		`c.toml:4: program.web.stop.signal: "TERMINATE" is not a signal: write its name, such as "TERM", "QUIT" or "USR1"
c.toml:4: program.web.stop.signal: does nothing beside steps: remove it, or make it a step
c.toml:5: program.web.stop.timeout: does nothing beside steps: remove it, or make it a step
c.toml:6: program.web.stop.steps[0]: lacks a signal or a timeout: write such as { signal = "QUIT", timeout = "20s" }
c.toml:6: program.web.stop.steps[1].signal: 15 is a number: write the name of the signal, such as "TERM"
c.toml:6: program.web.stop.steps[2]: is an integer, not a table: write { key = value, … }
c.toml:9: program.b.stop.steps: is not an array of steps: write such as steps = [{ signal = "QUIT", timeout = "20s" }, { signal = "TERM", timeout = "5s" }]`},
	{"backoff", web + "[program.web.restart.backoff]\nmin = \"40s\"\n",
		`c.toml:3: program.web.restart.backoff: min, 40s, is longer than max, 30s: write a min that is at most max`},
	{"placeholders", "[program.web]\ncommand = [\"./web\", \"{fd:htp} {fd:http} {x}\"]\n" +
		"reload.preflight = [\"./web\", \"{fd:http\"]\n[[program.web.listen]]\nname = \"http\"\naddress = \":1\"\n" +
		"[program.b]\ncommand = [\"{fd:}\"]\nenvironment = { A = \"fd://{fd:x}\", B = \"{x}\" }",
		`c.toml:2: program.web.command[1]: {fd:htp} names no listener: the listeners are http
c.toml:3: program.web.reload.preflight[1]: {fd:http is not closed: write }
c.toml:8: program.b.command[0]: {fd:} names no listener: write [[program.b.listen]]
c.toml:9: program.b.environment.A: {fd:x} names no listener: write [[program.b.listen]]`},
	{"names of programs", "[program.\"-a\"]\ncommand = [\"x\"]\n[program.\"a b\"]\ncommand = [\"x\"]\n",
		`c.toml:1: program.-a: is not a valid program name: use at most 64 letters, digits, dots, dashes and underscores, the first a letter or digit
c.toml:3: program."a b": is not a valid program name: use at most 64 letters, digits, dots, dashes and underscores, the first a letter or digit`},
	{"includes", "[supervisor]\ninclude = [\n  \"missing.toml\",\n  \"[.toml\",\n  \"d/*.toml\",\n]\n" + web +
		"-- d/a.toml --\n[supervisor]\nlog_level = \"info\"\n[program.web]\ncommand = [\"y\"]\n[program.x]\n" +
		"-- d/b.toml --\nnonsense\n",
		`c.toml:3: supervisor.include[0]: there is no missing.toml: create the file, or write a pattern with * if it may be missing
c.toml:4: supervisor.include[1]: "[.toml" is not a pattern: close the bracket, or write \[ for a bracket
d/a.toml:1: supervisor: does not belong in an included file: write only [program.NAME] tables here, and the rest in c.toml
d/a.toml:3: program.web: the program is already defined at c.toml:7: rename or remove one of them
d/a.toml:5: program.x: has no command: write such as command = ["./web", "-v"]
d/b.toml:1: not valid TOML: expected '.' or '=', but got '\n' instead`},
	{"nested too deeply", "a = " + strings.Repeat("[", 100_000),
		`c.toml:1: nested too deeply: this is more than any configuration needs`},
	{"a key that is too long", "[a" + strings.Repeat(".a", 100_000) + "]",
		`c.toml:1: a key has more than 512 bytes: this is more than any configuration needs`},
	{"too many values", "a = [" + strings.Repeat("1,", 100_000) + "]",
		`c.toml:1: more than 50000 keys and values: this is more than any configuration needs`},
	{"too large", strings.Repeat("#", 1<<20+1), `c.toml: read c.toml: more than 1048576 bytes`},
	{"control", "[supervisor]\ncontrol = \"/" + strings.Repeat("x", 107) + "\"\n" + web,
		`c.toml:2: supervisor.control: has 108 bytes, too many for a socket's address: write a path of at most 107`},
	{"control_read", "[supervisor]\ncontrol_read = \"all\"\n" + web,
		`c.toml:2: supervisor.control_read: "all" is not known: did you mean "any"? known are "none" and "any"`},
	{"runtime_dir", "[supervisor]\nruntime_dir = \"/" + strings.Repeat("x", 70) + "\"\n" + web,
		`c.toml:2: supervisor.runtime_dir: has 71 bytes, too many for the sockets in it: write a path of at most 70`},
}

const ranges = `c.toml:3: program.web.workers: 0 is out of range: write a number from 1 to 10000
c.toml:5: program.web.limits.nice: 20 is out of range: write a number from -20 to 19
c.toml:6: program.web.limits.oom_score_adj: -1001 is out of range: write a number from -1000 to 1000
c.toml:7: program.web.limits.nofile: -1 is out of range: write a number or "unlimited"
c.toml:8: program.web.limits.rlimits.as: "1XB" is not a size: write a size such as "512MiB", a number of bytes, or "unlimited"
c.toml:9: program.web.limits.umask: 27 is a decimal number: write "0027" or 0o027
c.toml:10: program.web.limits.nproc: "5KiB" is not a limit: write a number or "unlimited"
c.toml:11: program.web.limits.ambient_capabilities: "CAP_NET_BINDSERVICE" is not a capability: capabilities(7) lists them, such as CAP_NET_BIND_SERVICE
c.toml:13: program.web.reload.max_draining: -1 is out of range: write a number from 0 to 1000`

func TestBadFilesAreRefusedWithEveryProblemInItsPlace(t *testing.T) {
	for _, b := range badFiles {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			contents := map[string]string{}
			name, text := "c.toml", b.text
			for {
				before, after, more := strings.Cut(text, "-- ")
				contents[name] = before
				if !more {
					break
				}
				name, text, _ = strings.Cut(after, " --\n")
			}
			if got := messages(t, contents); got != b.want {
				t.Errorf("got\n%s\nwant\n%s", got, b.want)
			}
		})
	}
}

// TestProblemsHaveColumns: the other tests look at lines only.
func TestProblemsHaveColumns(t *testing.T) {
	dir := files(t, map[string]string{"c.toml": "[program.web]\ncommand = [\"./web\"]\n  workers = 0\n" +
		"stop = { signal = \"TERM\", timeout = 5 }\n" +
		"[[program.web.listen]]\nmode = \"0\"\n"})
	_, err := Load(filepath.Join(dir, "c.toml"))
	want := `c.toml:3:3: program.web.workers: 0 is out of range
c.toml:4:27: program.web.stop.timeout: is a number without a unit
c.toml:5:1: program.web.listen[0]: has no address
c.toml:6:1: program.web.listen[0].mode: lets no one connect`
	var got []string
	for line := range strings.Lines(fmt.Sprint(err)) {
		parts := strings.SplitN(strings.TrimPrefix(line, dir+"/"), ": ", 4)
		got = append(got, strings.TrimSpace(strings.Join(parts[:min(len(parts), 3)], ": ")))
	}
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if _, err := Parse("/", "c.toml", []byte("[program.web]\ncommand = [\"a\"]\n  x = 0660\n")); err == nil ||
		!strings.HasPrefix(err.Error(), "c.toml:3:") || !strings.Contains(err.Error(), `write it in quotes: "0660"`) {
		t.Errorf("syntax: %v", err)
	}
}

// TestListenerMayBeItsAddress: a listener without other keys.
func TestListenerMayBeItsAddress(t *testing.T) {
	want := load(t, minimal+"listen = [{ address = \"127.0.0.1:8080\" }, { address = \":81\", name = \"x\" }]\n").Programs[0].Listen
	if got := load(t, minimal+"listen = [\"127.0.0.1:8080\", { address = \":81\", name = \"x\" }]\n").Programs[0].Listen; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := load(t, minimal+"listen = \"127.0.0.1:8080\"\n").Programs[0].Listen; !slices.Equal(got, want[:1]) {
		t.Errorf("got %+v, want %+v", got, want[:1])
	}
}

// TestWordsOfOthersLeadToKeysThatExist: each key that a word of another program, or a removed one, leads to exists, and
// neither is a key.
func TestWordsOfOthersLeadToKeysThatExist(t *testing.T) {
	known, own := map[string]bool{"": true}, map[string]bool{}
	for _, table := range programTables() {
		for _, key := range table.Keys {
			path := strings.TrimPrefix(table.Path+"."+key, ".")
			known[path], own[document.Plain(path)] = true, true
		}
	}
	words := 0
	for word, key := range newLoader().keys.Words() {
		if words++; own[word] || !known[key] {
			t.Errorf("%s is a key, or leads to %q, which is none", word, key)
		}
	}
	for name, key := range meant.Removed() {
		if words++; known[strings.TrimPrefix(name, "program.")] || !known[key] {
			t.Errorf("%s is a key, or leads to %q, which is none", name, key)
		}
	}
	if words < 400 {
		t.Errorf("there are %d words", words)
	}
}

func TestMissingFileIsAProblem(t *testing.T) {
	if got, want := messages(t, nil), "c.toml: cannot read: no such file or directory"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// addr parses a valid address.
func addr(s string) socket.Address {
	a, err := socket.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

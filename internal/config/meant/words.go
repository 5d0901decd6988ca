package meant

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/worker/output"
)

// synonym says which words of other programs (Python's Supervisor, circus, systemd, pm2, Compose, Kubernetes, Nomad)
// stand for a key of a program, and how to write their value. The words are as document.Plain writes them, with the
// path of their table before them where that is not the program's.
type synonym struct {
	key   string
	how   translation
	words string
}

// translation makes a value of supervisord, in TOML, of that which v has under the name of another program; "": it
// cannot.
type translation func(v document.Value, raw any) string

func (k *Keys) synonyms() []synonym {
	return slices.Concat(wordsForStart(), k.wordsForProbes(), k.wordsForDeploys())
}

// wordsForStart are those for the program, its environment and its listeners.
func wordsForStart() []synonym {
	return []synonym{
		{"command", asCommand, "cmd exec execstart script entrypoint run program start"},
		{"directory", asIs, "cwd workingdir workingdirectory workdir dir chdir rootdir"},
		{"user", asText, "uid username runas runasuser"},
		{"group", asText, "gid runasgroup"},
		{"workers", asNumber, "numprocs numprocesses instances replicas processes procs concurrency scale count " +
			"deploy.replicas"},
		{"after", asNames, "dependson requires wants needs startafter bindsto links"},
		{"environment", asEnvironment, "env envvars environ vars"},
		{"environment_file", asIs, "envfile environmentfiles dotenv envdir environmentdir envfiles"},
		{"stdout", asOutput, "stdoutlogfile stdoutstream outfile standardoutput outputlog log.stdout"},
		{"stderr", asOutput, "stderrlogfile stderrstream errorfile errfile standarderror errorlog log.stderr"},
		{"watch", asIs, "watchfiles watchpaths"},

		{"listen", asListen, listenWords},
		{"listen.address", asAddress, "listen.port listen.path listen.unix listen.bind listen.addr listen.listen " +
			"listen.socketpath"},
		{"listen.mode", asIs, "listen.permissions listen.socketmode listen.chmod socketmode"},
		{"listen.user", asIs, "listen.owner listen.socketuser listen.socketowner socketowner socketuser"},
		{"listen.group", asIs, "listen.socketgroup socketgroup"},
		{"listen.socket.keep_alive", asSeconds, "listen.tcpkeepalive"},
	}
}

// listenWords are those for the listeners of a program.
const listenWords = "ports socket sockets address addr port bindaddress http tcp listeners expose listenstream " +
	"usesockets unix listenport"

// wordsForProbes are those for whether a worker serves.
func (k *Keys) wordsForProbes() []synonym {
	return []synonym{
		{"ready", k.asTable("ready"), "readiness readinessprobe startupprobe startup readycheck"},
		{"ready", asProbe, "readyurl readypath readinesspath readinessurl"},
		{"ready.method", asNotify, "waitready notify sdnotify type"},
		{"ready.method", asIs, "ready.type"},
		{"ready.url", asURL, "ready.path ready.uri ready.endpoint ready.httpget ready.http"},
		{"ready.command", asCommand, "ready.cmd ready.exec ready.test ready.script"},
		{"ready.delay", asSeconds, "startsecs initialdelayseconds ready.initialdelayseconds ready.wait ready.startsecs"},
		{"ready.interval", asSeconds, "ready.periodseconds ready.period"},
		{"ready.timeout", asMilliseconds, "listentimeout"},
		{"ready.timeout", asSeconds, "timeoutstartsec startuptimeout starttimeout progressdeadlineseconds reload.timeout " +
			"reload.readytimeout"},

		{"health", k.asTable("health"), "healthcheck livenessprobe liveness check"},
		{"health", asProbe, "healthcheckurl healthurl healthpath healthcheckpath livenessurl"},
		{"health.method", asIs, "health.type"},
		{"health.url", asURL, "health.path health.uri health.endpoint health.httpget health.http"},
		{"health.command", asCommand, "health.test health.cmd health.exec health.script"},
		{"health.interval", asSeconds, "health.periodseconds health.period health.every healthinterval"},
		{"health.timeout", asSeconds, "health.timeoutseconds"},
		{"health.failures", asIs, "health.retries health.threshold health.failurethreshold health.unhealthythreshold"},
		{"health.watchdog", asSeconds, "watchdogsec"},
	}
}

// wordsForDeploys are those for how workers are replaced and stopped, their limits and logs.
func (k *Keys) wordsForDeploys() []synonym {
	return []synonym{
		{"reload", k.asTable("reload"), "deploy update rollout upgrade"},
		{"reload.strategy", asStrategy,
			"rolling rollingupdate bluegreen zerodowntime reload.type reload.rolling reload.bluegreen"},
		{"reload.soak", asSeconds, "minreadyseconds reload.wait reload.delay soaktime"},
		{"reload.keep", asSeconds, "rollbacktime rollbackwindow reload.rollback"},
		{"reload.preflight", asCommand,
			"execstartpre prestart beforestart beforereload predeploy reload.check reload.test configtest " +
				"hooks.beforereload hooks.prestart hooks.beforestart hooks.predeploy hooks.beforedeploy"},

		{"drain.timeout", asSeconds, "connectiondraining deregistrationdelay drain.wait reload.drain"},
		{"stop.signal", asIs, "stopsignal killsignal"},
		{"stop.timeout", asMilliseconds, "killtimeout"},
		{"stop.timeout", asSeconds, "stopwaitsecs gracefultimeout stopgraceperiod timeoutstopsec graceperiod shutdowntimeout " +
			"terminationgraceperiodseconds gracefulshutdowntimeout timeoutsec stop.graceperiod stop.wait stop.kill " +
			"stop.killafter"},
		{"stop.group", asIs, "killasgroup stopasgroup killgroup"},
		{"compat.reload_signal", asIs, "reload.signal"},

		{"restart.when", asRestart, "autorestart respawn restartpolicy restart.policy restart.condition restart.mode"},
		{"restart.backoff", asBackoff, "restartsec retryin backoff restart.delay restart.sec restart.wait"},
		{"restart.backoff", asBackoffInMilliseconds, "restartdelay expbackoffrestartdelay"},
		{"restart.budget", asIs, "startretries maxrestarts retries startlimitburst restart.maxattempts restart.retries " +
			"restart.max"},
		{"restart.stable_after", asMilliseconds, "minuptime"},
		{"success_exit_codes", asIs, "exitcodes successexitstatus stopexitcodes successcodes restart.successexitcodes"},

		{"limits.max_memory", asSize, "maxmemoryrestart memory memlimit memorymax memorylimit maxmem memoryhigh " +
			"limits.memory limits.mem"},
		{"limits.max_age", asSeconds, "maxlifetime maxruntime runtimemaxsec ttl limits.maxlifetime"},
		{"limits.nofile", asIs, "limitnofile minfds maxfds openfiles limits.openfiles"},
		{"limits.nproc", asIs, "limitnproc"},
		{"limits.core", asIs, "limitcore"},
		{"limits.memlock", asIs, "limitmemlock"},
		{"limits.ambient_capabilities", asIs, "capabilities capadd"},
		{"limits", k.asTable("limits"), "ulimit ulimits resources"},

		{"log.file", asIs, "logdir logpath log.path log.name log.filename"},
		{"log.max_size", asSize, "stdoutlogfilemaxbytes stderrlogfilemaxbytes maxbytes log.size log.maxbytes log.rotatesize"},
		{"log.max_files", asIs, "stdoutlogfilebackups stderrlogfilebackups backups log.backups log.keep log.maxbackups " +
			"log.retain log.count"},
		{"log", k.asTable("log"), "logging logs logrotate"},

		{"hooks.after_reload", asCommand,
			"postdeploy afterdeploy execstartpost onreload poststart hooks.postdeploy hooks.afterdeploy " +
				"hooks.onsuccess hooks.success hooks.poststart hooks.onreload"},
		{"hooks.reload_failed", asCommand, "onfailure hooks.onfailure hooks.failed hooks.failure"},
		{"hooks.worker_crashed", asCommand, "oncrash hooks.oncrash hooks.crashed hooks.crash"},
	}
}

// unsupported are words for what supervisord does not do, and what to do instead.
var unsupported = []struct{ remedy, words string }{
	{"remove it, and write the same path for stdout and stderr to have both in one file",
		"redirectstderr mergelogs combinelogs"},
	{"remove it: every program starts with supervisord; `supervisord stop` stops one", "autostart enabled disabled"},
	{`remove it, and write after in the programs that need another one, such as after = ["db"]`, "priority order"},
	{`remove it, and write after = ["NAME"] in the programs that need this one`, "before"},
	{"write reload.every = \"24h\", or a timer of systemd that runs `supervisord reload`", "cronrestart"},
	{"remove it: supervisord does not run jobs at times; use a timer of systemd, or cron", "schedule cron"},
	{"remove it: all workers share the listeners", "execmode"},
	{"remove it: the words of command are the program and its arguments",
		"args arguments interpreter interpreterargs nodeargs"},
	{"remove it: supervisord runs programs, not images",
		"image volumes networks build containername hostname pull platform"},
	{"remove it: the name of a program is that of its table, [program.NAME]", "processname name"},
	{"remove it: supervisord has no groups; its commands take the name of a program", "namespace programs"},
	{"remove it: a reload starts new workers and stops the old ones", "execreload reloadcommand"},
	{"remove it, and write stop.signal: a signal stops a worker", "execstop execstoppost stopcommand"},
	{"remove it: an old worker gets no new connection before it is stopped; see drain.timeout", "prestop lifecycle"},
	{"remove it: supervisord does not do that; run one supervisord for this program, in a unit of systemd that has it",
		"remainafterexit privatetmp protectsystem protecthome runtimedirectory statedirectory logsdirectory cpuquota cpus " +
			"cpuaffinity " +
			"slice dynamicuser cgroup securitycontext restrictaddressfamilies systemcallfilter readwritepaths limits.cpus"},
	{"remove it: a failing program is started again and again, with growing waits; see restart.backoff",
		"startlimitintervalsec startlimitinterval"},
	{"remove it, and run `supervisord reload NAME --canary 10%`: each deploy chooses",
		"canary canarypercent reload.canary reload.percent " +
			"reload.weight reload.canarypercent"},
	{"remove it, and run `supervisord reload NAME --hold`: each deploy chooses", "hold reload.hold reload.pause"},
	{`remove it: supervisord does not count requests; write limits.max_age = "24h" or limits.max_memory = "512MiB"`,
		"maxrequests"},
	{"remove it: TLS is the work of the program, or of a proxy in front of it",
		"ssl tls cert certificate listen.ssl listen.tls listen.cert"},
	{"remove it: supervisord does not look into requests; a proxy in front of it does",
		"domain host hosts servername route routes"},
	{"remove it: supervisord follows the processes that it starts; compat.status_file has their PIDs", "pidfile pid"},
	{"remove it, and let the program stay in the foreground", "daemonize daemon background"},
	{`remove it, and write command = ["sh", "-c", "exec …"]`, "shell"},
	{"remove it: supervisord does not read what a program writes; its own level is log_level in [supervisor]",
		"loglevel log.level log.format"},
	{"remove it: a log file is rotated by max_size; for times and compression logrotate(8) renames it and sends USR1",
		"log.rotate log.rotation log.interval log.maxage log.compress log.gzip"},
	{"write it as a comment: # …", "description documentation"},
	{"remove it: TOML does not inherit; copy the keys", "extends inherits template"},
	{"remove it: the checks begin when a worker is ready",
		"health.startperiod health.graceperiod health.initialdelayseconds health.delay healthgraceperiod"},
	{"remove it: one success is enough", "health.successthreshold ready.successthreshold health.healthythreshold"},
	{"remove it: a worker has ready.timeout to become ready",
		"ready.retries ready.failurethreshold ready.failures ready.attempts"},
	{"remove it: workers have no terminal", "tty stdinopen"},
	{"remove it, or write it into the address: address = \"HOST:PORT\"", "listen.host listen.protocol listen.scheme"},
}

// meaning is what a word of another program means: a key and the translation of its value, or what to do instead.
type meaning struct {
	key    string
	how    translation
	remedy string
}

// meanings returns the table of all words of other programs.
func (k *Keys) meanings() map[string]meaning {
	k.once.Do(func() {
		k.words = map[string]meaning{}
		for _, s := range k.synonyms() {
			for word := range strings.FieldsSeq(s.words) {
				k.words[word] = meaning{key: s.key, how: s.how}
			}
		}
		for _, u := range unsupported {
			for word := range strings.FieldsSeq(u.words) {
				k.words[word] = meaning{remedy: u.remedy}
			}
		}
	})
	return k.words
}

// Words yields every word of another program with the path of the key that it leads to; "": it leads to none.
func (k *Keys) Words() iter.Seq2[string, string] {
	return func(yield func(word, key string) bool) {
		for word, m := range k.meanings() {
			if !yield(word, m.key) {
				return
			}
		}
	}
}

// Removed yields every removed key, by its full name without the program's, with the path of the key that has replaced
// it in the program; "": none has.
func Removed() iter.Seq2[string, string] {
	return func(yield func(name, key string) bool) {
		for name, moved := range removed {
			if !yield(name, moved.to) {
				return
			}
		}
	}
}

// Unknown returns what to write instead of a key that the table v does not have, and the full name of the key that the
// author meant. It is the Unknown of a document.
func (k *Keys) Unknown(v document.Value, name string) (meant, remedy string) {
	raw := v.Child(name).Raw
	generic := genericName(document.Key(v.Key, name))
	if moved, gone := removed[generic]; gone {
		if moved.remedy != "" {
			return "", strings.ReplaceAll(moved.remedy, "NAME", strings.TrimPrefix(programOf(v), "program."))
		}
		return fullName(v, moved.to), instruct(v, moved.to, raw)
	}
	if programOf(v) == "" {
		return k.outside(v, name)
	}
	word := document.Plain(strings.TrimPrefix(generic, "program."))
	found, known := k.meanings()[word]
	if !known {
		if meant, remedy = k.place(v, name); remedy == "" {
			meant, remedy = k.misspelt(v, name)
		}
		return meant, remedy
	}
	if found.remedy != "" {
		return "", strings.ReplaceAll(found.remedy, "NAME", strings.TrimPrefix(programOf(v), "program."))
	}
	value := found.how(v, raw)
	table, key, nested := strings.Cut(found.key, ".")
	switch {
	case value == "" && nested:
		return fullName(v, found.key), fmt.Sprintf("write %s in [%s.%s]", key, programOf(v), table)
	case value == "":
		return fullName(v, found.key), fmt.Sprintf("write [%s.%s]", programOf(v), found.key)
	case key == "url" && !v.Has("method"): // a probe by HTTP without its method
		return fullName(v, table+".method"), `write method = "http" and ` + line(v, found.key, value)
	}
	return fullName(v, found.key), "write " + line(v, found.key, value)
}

// outside is Unknown for a table that is not in a program.
func (k *Keys) outside(v document.Value, name string) (meant, remedy string) {
	raw := v.Child(name).Raw
	table, isTable := raw.(map[string]any)
	ofProgram := isTable && slices.ContainsFunc(slices.Collect(maps.Keys(table)), func(key string) bool {
		found, known := k.meanings()[document.Plain(key)]
		return key == "command" || known && found.key == "command"
	})
	ofSupervisor := slices.ContainsFunc(k.Supervisor,
		func(key string) bool { return document.Plain(key) == document.Plain(name) })
	plain := document.Plain(name)
	switch {
	case v.Key != "" && plain == "logfile":
		return "", "remove it: supervisord writes its log to stderr, which the journal, a container or a shell keeps"
	case v.Key != "" && (plain == "nodaemon" || plain == "daemon" || plain == "daemonize"):
		return "", "remove it: supervisord stays in the foreground, and systemd or a container keeps it running"
	case v.Key != "" && len(k.homes(name)) > 0:
		return k.place(v, name)
	case v.Key != "":
		return "", ""
	case plain == "supervisord":
		return "", "write [supervisor]"
	case plain == "include" && isTable:
		for _, files := range table {
			return "", "write include = " + document.TOML(files) + " in [supervisor]"
		}
	case ofSupervisor:
		return "", fmt.Sprintf("write %s = %s in [supervisor]", name, document.TOML(raw))
	case ofProgram:
		return "", fmt.Sprintf("write [%s]", document.Key("program", name))
	case slices.Contains([]string{"programs", "service", "services", "app", "apps", "process", "processes", "worker",
		"workers"}, plain):
		names := []string{"[program.NAME]"}
		if isTable && len(table) > 0 {
			names = nil
			for _, inner := range slices.Sorted(maps.Keys(table)) {
				names = append(names, "["+document.Key("program", inner)+"]")
			}
		}
		return "", "write each program as a table: " + strings.Join(names, ", ")
	case len(k.homes(name)) > 0:
		return "", "write it in [program.NAME]: it is a key of a program"
	}
	return "", ""
}

// Scalar returns what to write where another value than a table has the name of a table.
func Scalar(v document.Value) string {
	text, isText := v.Raw.(string)
	parent, name := v.Key, ""
	if at := strings.LastIndex(v.Key, "."); at >= 0 {
		parent, name = v.Key[:at], v.Key[at+1:]
	}
	if programPrefix().FindString(v.Key) != parent {
		return ""
	}
	_, isDuration := v.Raw.(int64)
	if _, err := time.ParseDuration(text); err == nil {
		isDuration = true
	}
	duration := asSeconds(v, v.Raw)
	switch {
	case name == "restart":
		return "write restart.when = " + asRestart(v, v.Raw)
	case name == "ready" && isDuration:
		return "write ready.timeout = " + duration
	case name == "ready" && slices.Contains([]string{"notify", "accept", "delay"}, text):
		return "write ready.method = " + document.Quote(text)
	case (name == "ready" || name == "health") && isText:
		return fmt.Sprintf("write %s = %s", name, asProbe(v, text))
	case name == "drain" && isDuration, name == "stop" && isDuration:
		return fmt.Sprintf("write %s.timeout = %s", name, duration)
	case name == "stop" && isText:
		return "write stop.signal = " + document.Quote(text)
	case name == "reload" && isText:
		return "write reload.strategy = " + asStrategy(v, text)
	case name == "log" && isText:
		return fmt.Sprintf(`write stdout = "capture" and log.file = %s`, document.Quote(text))
	}
	return ""
}

func asIs(_ document.Value, raw any) string { return document.TOML(raw) }

// asNames writes a list. Compose's depends_on may be a table, whose keys are the names.
func asNames(_ document.Value, raw any) string {
	if table, is := raw.(map[string]any); is {
		var names []any
		for _, name := range slices.Sorted(maps.Keys(table)) {
			names = append(names, name)
		}
		return document.TOML(names)
	}
	return document.TOML(raw)
}

func asText(_ document.Value, raw any) string { return document.Quote(fmt.Sprint(raw)) }

// asNumber writes a number of workers. pm2 says max, 0 or -1 for one of each CPU.
func asNumber(_ document.Value, raw any) string {
	if n, err := strconv.Atoi(fmt.Sprint(raw)); err == nil && n > 0 {
		return strconv.Itoa(n)
	}
	return `"auto"`
}

func asSeconds(_ document.Value, raw any) string      { return duration(raw, "s") }
func asMilliseconds(_ document.Value, raw any) string { return duration(raw, "ms") }

// duration writes a duration; unit is that of a number without one.
func duration(raw any, unit string) string {
	text := fmt.Sprint(raw)
	if strings.Trim(text, "0123456789") == "" {
		if whole, is := strings.CutSuffix(text, "000"); is && unit == "ms" && whole != "" {
			text, unit = whole, "s"
		}
		return document.Quote(text + unit)
	}
	if _, err := time.ParseDuration(text); err == nil {
		return document.Quote(text)
	}
	return document.Quote(cmp.Or(document.DurationMeant(text), "30s"))
}

// sizeWritten is a size as other programs write it: "300M", "1G", "512 mb".
var sizeWritten = pattern.Lazy(`(?i)^(\d+)\s*([KMGT])(i?B)?$`)

func asSize(_ document.Value, raw any) string {
	if m := sizeWritten().FindStringSubmatch(fmt.Sprint(raw)); m != nil {
		return document.Quote(m[1] + strings.ToUpper(m[2]) + "iB")
	}
	return document.TOML(raw)
}

func asRestart(_ document.Value, raw any) string {
	switch text := document.Plain(fmt.Sprint(raw)); {
	case text == "false" || text == "no" || text == "never" || text == "none":
		return `"never"`
	case strings.HasPrefix(text, "on") || text == "unexpected":
		return `"on-failure"`
	}
	return `"always"`
}

func asBackoff(v document.Value, raw any) string { return backoff(v, asSeconds(v, raw)) }
func asBackoffInMilliseconds(v document.Value, raw any) string {
	return backoff(v, asMilliseconds(v, raw))
}

func backoff(_ document.Value, least string) string {
	return fmt.Sprintf(`{ min = %s, max = "30s" }`, least)
}

func asStrategy(_ document.Value, raw any) string {
	text := document.Plain(fmt.Sprint(raw))
	switch {
	case strings.HasPrefix(text, "roll"):
		return `"rolling"`
	case strings.HasPrefix(text, "stop"), strings.HasPrefix(text, "recreate"), text == "false":
		return `"stop-first"`
	}
	return `"all"`
}

// asNotify writes a method of readiness: Type= of systemd, wait_ready of pm2.
func asNotify(v document.Value, raw any) string {
	switch {
	case raw == "notify" || raw == "notify-reload" || raw == true:
		return `"notify"`
	case v.Has("listen"):
		return `"accept"`
	}
	return `"delay"`
}

func asOutput(_ document.Value, raw any) string {
	text := fmt.Sprint(raw)
	for _, prefix := range []string{"file:", "append:", "truncate:"} {
		text = strings.TrimPrefix(text, prefix)
	}
	switch notFiles[strings.ToLower(text)] {
	case toInherit, toOther:
		return `"inherit"`
	case toNull:
		return `"null"`
	case toCapture:
		return `"capture"`
	}
	return document.Quote(text)
}

// asTable writes a table that another program names otherwise, with its keys; a text is the URL or the path of a probe.
func (k *Keys) asTable(name string) translation {
	return func(v document.Value, raw any) string {
		table, is := raw.(map[string]any)
		if text, isText := raw.(string); isText {
			return asProbe(v, text)
		} else if !is {
			return ""
		}
		var parts []string
		set := func(key, value string) {
			if part := key + " = " + value; value != "" && !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
		own := k.Program[slices.IndexFunc(k.Program, func(t KeyTable) bool { return t.Path == name })].Keys
		inner := document.Value{In: v.In, Key: fullName(v, name), Raw: raw}
		for _, key := range slices.Sorted(maps.Keys(table)) {
			found, known := k.meanings()[name+"."+document.Plain(key)]
			at := slices.IndexFunc(own, func(k string) bool { return document.Plain(k) == document.Plain(key) })
			method := map[string]string{name + ".url": `"http"`, name + ".command": `"exec"`}[found.key]
			switch {
			case at >= 0:
				set(own[at], document.TOML(table[key]))
			case known && found.remedy != "":
			case known && strings.HasPrefix(found.key, name+"."):
				if table["method"] == nil && method != "" {
					set("method", method)
				}
				set(strings.TrimPrefix(found.key, name+"."), found.how(inner, table[key]))
			default:
				return ""
			}
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
}

// asURL writes the URL of a probe that is a path or a URL of this machine, at the only listener of the program.
func asURL(v document.Value, raw any) string {
	text, is := raw.(string)
	if table, nested := raw.(map[string]any); nested {
		text, is = table["path"].(string)
	}
	if !is {
		return ""
	}
	if at := ownURL().FindStringSubmatch(text); at != nil {
		text = at[1]
	}
	if strings.HasPrefix(text, "/") || text == "" {
		return document.Quote("http://{listener:" + listenerName(v) + "}" + cmp.Or(text, "/"))
	}
	return document.Quote(text)
}

// ownURL is a URL of this machine, and its path.
var ownURL = pattern.Lazy(`^https?://(?:localhost|127\.[0-9.]+|0\.0\.0\.0|\[::1?\])(?::\d+)?(/.*)?$`)

// listenerName is the name of the first listener of the program that v belongs to, or of the one that a word of another
// program means.
func listenerName(v document.Value) string {
	program := v
	table, _ := v.In.Root().Child("program").Raw.(map[string]any)
	for name := range table {
		if one := v.In.Root().Child("program").Child(name); one.Key == programOf(v) {
			program = one
		}
	}
	if items := program.Child("listen").OneOrMore(); len(items) > 0 {
		for _, raw := range []any{items[0].Child("name").Raw, items[0].Child("address").Raw, items[0].Raw} {
			if text, is := raw.(string); is {
				return text
			}
		}
	}
	own, _ := program.Raw.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(own)) {
		if slices.Contains(strings.Fields(listenWords), document.Plain(key)) {
			if list := addressesMeant(own[key]); len(list) > 0 {
				return strings.Trim(list[0], `"`)
			}
		}
	}
	return "NAME"
}

// asProbe writes a check by a URL or a path.
func asProbe(v document.Value, raw any) string {
	if url := asURL(v, raw); url != "" {
		return fmt.Sprintf(`{ method = "http", url = %s }`, url)
	}
	return ""
}

// asCommand writes a command: a list, a command line, or the script and the args of pm2.
func asCommand(v document.Value, raw any) string {
	switch raw := raw.(type) {
	case string:
		line := raw
		if script, is := v.Child("script").Raw.(string); is {
			line = script
			if args, is := v.Child("args").Raw.(string); is {
				line += " " + args
			}
			if with, is := v.Child("interpreter").Raw.(string); is {
				line = with + " " + line
			} else if strings.HasSuffix(script, "js") {
				line = "node " + line
			}
		}
		return document.Command(line)
	case []any:
		if len(raw) > 1 && (raw[0] == "CMD" || raw[0] == "CMD-SHELL") { // Docker's health check
			return document.TOML(raw[1:])
		}
		return document.TOML(raw)
	}
	return ""
}

func asEnvironment(_ document.Value, raw any) string { return Environment(raw) }

// Environment writes variables as a table in TOML: those of a table, or of the lines of Compose and Supervisor; "": raw
// has none.
func Environment(raw any) string {
	if table, is := raw.(map[string]any); is {
		texts := map[string]any{}
		for name, value := range table {
			texts[name] = fmt.Sprint(value)
		}
		return document.TOML(texts)
	}
	var lines []string
	if text, is := raw.(string); is {
		lines = strings.Split(text, ",")
	} else {
		for _, item := range (document.Value{Raw: raw}).OneOrMore() {
			text, _ := item.Raw.(string)
			lines = append(lines, text)
		}
	}
	variables := map[string]any{}
	for _, text := range lines {
		name, value, is := strings.Cut(strings.TrimSpace(text), "=")
		if !is {
			return ""
		}
		variables[name] = strings.Trim(value, `"'`)
	}
	return document.TOML(variables)
}

// asListen writes the listeners of a program.
func asListen(_ document.Value, raw any) string {
	if list := addressesMeant(raw); len(list) > 0 {
		return "[" + strings.Join(list, ", ") + "]"
	}
	return `["127.0.0.1:8080"]`
}

// asAddress writes the address of one listener.
func asAddress(v document.Value, raw any) string {
	if host, is := v.Child("host").Raw.(string); is {
		raw = fmt.Sprintf("%s:%v", host, raw)
	}
	if list := addressesMeant(raw); len(list) == 1 && !strings.HasPrefix(list[0], "{") {
		return list[0]
	}
	return `"127.0.0.1:8080"`
}

// notFiles are words of other supervisors for where output goes, and what to write here. A file of such a name would
// surprise.
var notFiles = map[string]string{
	"stdout": toOther, "stderr": toOther, "tty": toOther, "console": toOther,
	"inherited": toInherit, "parent": toInherit, "syslog": toInherit, "journal": toInherit, "journald": toInherit,
	"kmsg":           toInherit,
	"syslog+console": toInherit, "journal+console": toInherit, "kmsg+console": toInherit,
	"none": toNull, "off": toNull, "no": toNull, "false": toNull, "nil": toNull, "discard": toNull, "devnull": toNull,
	"auto": toCapture, "memory": toCapture, "pipe": toCapture, "file": toCapture,
}

const (
	toOther = `write the same path for stdout and stderr to have both in one file, "inherit" for the output of ` +
		`supervisord itself, or "capture"`
	toInherit = `write "inherit": it goes where the output of supervisord goes, which is the journal under systemd`
	toNull    = `write "null"`
	toCapture = `write "capture" for supervisord to keep it, or the path of a file`
)

// NotFile returns what to write instead of a word that is probably not meant as the name of a file; "": it is.
func NotFile(s string) string {
	word := strings.ToLower(s)
	for _, prefix := range []string{"file:", "append:", "truncate:"} { // systemd's
		if path, ok := strings.CutPrefix(word, prefix); ok {
			return fmt.Sprintf("write the path alone, %q: lines are appended", s[len(s)-len(path):])
		}
	}
	if remedy := notFiles[word]; remedy != "" || strings.ContainsAny(word, "./") {
		return remedy
	}
	if near, ok := document.Nearest(word,
		[]string{string(output.Inherit), string(output.Null), string(output.Capture)}); ok {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

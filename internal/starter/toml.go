package starter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/pattern"
)

// shortestPace is how long a worker that failed is not tried again, where --interval is 0.
const shortestPace = 200 * time.Millisecond

// readyTimeout is added to --interval: as long may a worker take that is to say that it is ready.
const readyTimeout = time.Minute

// keys are keys of the program with their values in TOML, and the flags that they come from.
type keys struct {
	values map[string]string
	flags  map[string]string
}

func (k *keys) put(key, value, flag string) { k.values[key], k.flags[key] = value, flag }

// toml writes the configuration that the flags ask for, and says which flag each key comes from.
func (o *Options) toml() (text string, flags map[string]string, err error) {
	k := &keys{map[string]string{}, map[string]string{}}
	t, err := o.tune()
	if err != nil {
		return "", nil, err
	}
	listeners, err := o.listeners()
	if err != nil {
		return "", nil, err
	}
	o.basics(k, t)
	o.replacement(k, t)
	if err := o.readiness(k); err != nil {
		return "", nil, err
	}
	if err := o.set(k); err != nil {
		return "", nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[supervisor]\nlog_format = \"start_server\"\ncontrol = \"off\"\n")
	if o.PIDFile != "" {
		fmt.Fprintf(&b, "pid_file = %s\n", config.Quote(o.PIDFile))
	}
	fmt.Fprintf(&b, "\n[program.%s]\n", program)
	for _, key := range slices.Sorted(maps.Keys(k.values)) {
		fmt.Fprintf(&b, "%s = %s\n", key, k.values[key])
	}
	for i, l := range listeners {
		b.WriteString(l.toml(o.Backlog))
		k.flags[fmt.Sprintf("listen[%d]", i)] = l.flag
	}
	return b.String(), k.flags, nil
}

func (o *Options) listeners() ([]listener, error) {
	var all []listener
	for _, spec := range o.Port {
		l, err := parsePort(spec)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	for _, path := range o.Path {
		l, err := parsePath(path, o.WorkDir)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// basics is what a worker is started with.
func (o *Options) basics(k *keys, t tuning) {
	k.put("command", `["server"]`, "the command") // it comes later, word for word
	k.put("dialect", `["start_server"]`, "")
	k.put("limits.ignore_sigpipe", "true", "")
	k.put("directory", config.Quote(cmp.Or(o.Dir, ".")), "--dir="+o.Dir)
	if o.StatusFile != "" {
		k.put("status_file", config.Quote(o.StatusFile), "--status-file="+o.StatusFile)
	}
	if t.dir != "" {
		k.put("environment_dir", config.Quote(t.dir), "--envdir="+t.dir)
	}
	for name, value := range t.passed {
		k.put("environment."+name, config.Quote(value), name)
	}
}

// replacement is how workers come and go.
func (o *Options) replacement(k *keys, t tuning) {
	pace, stable := time.Duration(o.Interval)*time.Second, "0s"
	if pace == 0 {
		pace, stable = shortestPace, "10s"
	}
	k.put("restart.generation", `"new"`, "")
	k.put("restart.backoff", fmt.Sprintf(`{ min = "%s", max = "%s" }`, pace, pace), "--interval="+strconv.Itoa(o.Interval))
	k.put("restart.stable_after", config.Quote(stable), "")
	k.put("reload.retry", config.Quote(pace.String()), "--interval="+strconv.Itoa(o.Interval))
	k.put("reload.soak", config.Quote(t.delay.String()), "--kill-old-delay="+t.delay.String())
	if t.every > 0 {
		k.put("reload.every", config.Quote(t.every.String()), "--auto-restart-interval="+t.every.String())
	}
	k.put("stop.signal", config.Quote(cmp.Or(o.SignalOnTERM, "TERM")), "--signal-on-term="+o.SignalOnTERM)
	k.put("stop.reload_signal", config.Quote(cmp.Or(o.SignalOnHUP, "TERM")), "--signal-on-hup="+o.SignalOnHUP)
	k.put("stop.int_signal", `"TERM"`, "")
	k.put("stop.timeout", config.Quote(cmp.Or(o.StopTimeout, "infinity")), "--stop-timeout="+o.StopTimeout)
	k.put("stop.max_draining", "0", "")
}

// readiness is --ready, or else that a worker is alive after --interval.
func (o *Options) readiness(k *keys) error {
	interval := time.Duration(o.Interval) * time.Second
	flag := "--ready=" + o.Ready
	k.put("ready.timeout", config.Quote((interval + readyTimeout).String()), "--interval="+strconv.Itoa(o.Interval))
	method, detail, has := strings.Cut(o.Ready, "=")
	if method == "" {
		k.put("ready.method", `"delay"`, "")
		k.put("ready.delay", config.Quote(interval.String()), "--interval="+strconv.Itoa(o.Interval))
		return nil
	}
	k.put("ready.method", config.Quote(method), flag)
	switch method {
	case "http":
		k.put("ready.url", config.Quote(detail), flag)
	case "tcp":
		k.put("ready.address", config.Quote(detail), flag)
	case "exec":
		k.put("ready.command", fmt.Sprintf(`["sh", "-c", %s]`, config.Quote(detail)), flag)
	default:
		if has {
			return fmt.Errorf("%s: %s takes nothing: write --ready=%s: %w", flag, method, method, ErrUsage)
		}
		return nil
	}
	if detail == "" {
		return fmt.Errorf("%s: write such as --ready=http=http://127.0.0.1:9000/, --ready=tcp=127.0.0.1:9000 "+
			"or --ready=exec='./check': %w", flag, ErrUsage)
	}
	return nil
}

// dotted is a key of TOML that needs no quotes.
var dotted = pattern.Lazy(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// set is --set: it wins over what other flags have made of a key.
func (o *Options) set(k *keys) error {
	for _, s := range o.Set {
		key, value, has := strings.Cut(s, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !has || key == "" || value == "" || strings.ContainsAny(s, "\n\r") || !dotted().MatchString(key) {
			return fmt.Errorf(`--set=%s: write KEY=VALUE, such as --set='reload.preflight=["./web", "-t"]': %w`, s, ErrUsage)
		}
		if key == "command" || key == "listen" {
			return fmt.Errorf("--set=%s: that is the command line's own: %w", s, ErrUsage)
		}
		k.put(key, value, "--set="+s)
	}
	return nil
}

package convert

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// rules say what becomes of each key of a source.
type rules map[string]rule

// rule says what becomes of one key. The zero rule keeps it in program.given, for code that needs several keys.
type rule func(p *program, s setting)

// reader reads the value of a setting for a key of the configuration. It returns false, and says why, if there is no such value.
type reader func(p *program, key string, s setting) (any, bool)

// to converts a key to a key of the configuration, such as "stop.signal".
func to(key string, read reader) rule {
	return func(p *program, s setting) {
		if s, ok := p.filled(s); ok {
			if value, ok := read(p, key, s); ok {
				p.set(key, value)
			}
		}
	}
}

// always sets a key of the configuration, whatever the value.
func always(key string, value any) rule {
	return func(p *program, _ setting) { p.set(key, value) }
}

// none is for a key that has no equivalent, with what to do instead.
func none(instead string) rule {
	return func(p *program, s setting) { p.lacks(s, instead) }
}

// unneeded is for a key that supervisord needs no equivalent of, and why.
func unneeded(why string) rule {
	return func(p *program, s setting) { p.unneeded(s, why) }
}

// noted is for a key that takes effect elsewhere, and where.
func noted(comment string) rule {
	return func(p *program, s setting) { p.note("", s, comment) }
}

// commented is for a key by which the source does not start the program.
func commented(why string) rule {
	return func(p *program, s setting) {
		p.off = true
		p.lacks(s, why)
	}
}

// whether is for a key that is true or false.
func whether(on, off rule) rule { return unless(isTrue, on, off) }

// unless is for a key with a special value. special reports false for ok, after the mistake, if the value is invalid.
func unless(special func(p *program, s setting) (yes, ok bool), then, otherwise rule) rule {
	return func(p *program, s setting) {
		filled, ok := p.filled(s)
		if !ok {
			return
		}
		switch yes, ok := special(p, filled); {
		case yes && then != nil:
			then(p, s)
		case ok && !yes && otherwise != nil:
			otherwise(p, s)
		}
	}
}

func isTrue(p *program, s setting) (yes, ok bool) { return p.truth(s) }

// is reports whether a value, less case, is this one.
func is(value string) func(*program, setting) (yes, ok bool) {
	return func(_ *program, s setting) (yes, ok bool) {
		return strings.EqualFold(strings.TrimSpace(s.value), value), true
	}
}

// atMost reports whether a number is at most n.
func atMost(n int) func(*program, setting) (yes, ok bool) {
	return func(p *program, s setting) (yes, ok bool) {
		i, ok := p.integer(s)
		return ok && i <= n, ok
	}
}

// kept is the rule of a key that code reads from program.given.
func kept(*program, setting) {}

// apply converts a setting by its rule.
func (p *program) apply(r rule, s setting) {
	p.given[s.key] = s
	r(p, s)
}

// filled is a setting with its variables expanded, for a value that no shell reads.
func (p *program) filled(s setting) (setting, bool) {
	if p.fill == nil {
		return s, true
	}
	return p.fill(s)
}

// resolved returns a setting with the parts of its expanded value replaced by what this machine has now.
func (p *program) resolved(s setting, value string) (setting, bool) {
	filled := s
	filled.text = s.String()
	list := parts(value)
	for i := 1; i < len(list); i += 2 {
		name := list[i][1:]
		v, ok := p.Host, true
		if !strings.HasPrefix(name, "$(") {
			v, ok = p.Getenv(strings.Trim(name, "${}"))
		}
		if !ok || dynamic(v) {
			p.lacks(s, name+" is not set: write its value")
			return s, false
		}
		p.note("", s, name+" as it was at the conversion")
		list[i] = v
	}
	filled.value = strings.Join(list, "")
	return filled, true
}

// get returns a setting that was kept, with its variables expanded.
func (p *program) get(key string) (setting, bool) {
	s, ok := p.given[key]
	if !ok {
		return s, false
	}
	return p.filled(s)
}

// isOn reports whether a key that was kept is true.
func (p *program) isOn(key string) bool {
	s, ok := p.get(key)
	if !ok {
		return false
	}
	on, _ := p.truth(s)
	return on
}

// The functions below read values. They report one that the source's own supervisor would reject, and return false.

// integer reads a whole number as Python's int() does.
func (d *document) integer(s setting) (int, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s.value), 10, 32)
	if err != nil {
		d.wrong(s, fmt.Sprintf("%q is not a number", s.value), "write a whole number")
	}
	return int(n), err == nil
}

// number reads a number of seconds, for example, with a fraction.
func (d *document) number(s setting) (float64, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s.value), 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		d.wrong(s, fmt.Sprintf("%q is not a number", s.value), "write a number such as 10")
		return 0, false
	}
	return n, true
}

// truth reads yes, true, on, 1 and their opposites.
func (d *document) truth(s setting) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(s.value)) {
	case "yes", "true", "on", "1":
		return true, true
	case "no", "false", "off", "0":
		return false, true
	}
	d.wrong(s, fmt.Sprintf("%q is neither true nor false", s.value), "write true or false")
	return false, false
}

// mode reads octal permissions or a umask.
func (d *document) mode(s setting) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(s.value), "0o"), 8, 32)
	if err != nil || n > 0o777 {
		d.wrong(s, fmt.Sprintf("%q is not an octal mode", s.value), "write an octal number such as 022")
		return 0, false
	}
	return n, true
}

// The readers of rules.

func asPath(p *program, _ string, s setting) (any, bool) {
	if s.value == "" {
		p.lacks(s, "the path is empty")
		return nil, false
	}
	return p.path(s.value), true
}

func asTruth(p *program, _ string, s setting) (any, bool) { return result(p.truth(s)) }

func asMode(p *program, _ string, s setting) (any, bool) {
	n, ok := p.mode(s)
	return fmt.Sprintf("%04o", n), ok
}

// asWorkers reads how many workers a program has.
func asWorkers(p *program, _ string, s setting) (any, bool) {
	const most = 10_000
	n, ok := p.integer(s)
	if ok && (n < 1 || n > most) {
		p.lacks(s, fmt.Sprintf("workers must be from 1 to %d", most))
		return nil, false
	}
	return n, ok
}

// result makes any of a typed value.
func result[T any](value T, ok bool) (any, bool) { return value, ok }

// asAccount reads a user or a group.
func asAccount(p *program, key string, s setting) (any, bool) {
	if s.value == "" {
		p.lacks(s, "it is empty")
		return nil, false
	}
	if n, err := strconv.ParseUint(s.value, 10, 64); err == nil && n >= math.MaxUint32 {
		p.wrong(s, s.value+" is not the number of a "+key, "write a number below 4294967295")
		return nil, false
	}
	return s.value, true
}

// asSignal reads the name or the number of a signal.
func asSignal(p *program, _ string, s setting) (any, bool) {
	name := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(s.value)), "SIG")
	realTime := strings.HasPrefix(name, "RTM")
	if n, err := strconv.Atoi(name); err == nil {
		name = strings.TrimPrefix(unix.SignalName(syscall.Signal(n)), "SIG")
		realTime = name == "" && n >= 32 && n <= 64
	}
	switch {
	case realTime:
		p.lacks(s, "supervisord does not send real-time signals: let the program accept TERM, which it sends instead")
	case name != "" && unix.SignalNum("SIG"+name) != 0:
		return name, true
	default:
		p.wrong(s, fmt.Sprintf("%q is not a signal", s.value), "write its name, such as TERM")
	}
	return nil, false
}

// asSeconds reads a duration of at least the shortest, in seconds. Whole seconds must have no fraction.
func asSeconds(shortest float64, whole bool) reader {
	return func(p *program, key string, s setting) (any, bool) {
		n, ok := 0.0, false
		if whole {
			var i int
			i, ok = p.integer(s)
			n = float64(max(i, 0))
		} else {
			n, ok = p.number(s)
		}
		if !ok {
			return nil, false
		}
		return p.duration(key, s, n, shortest)
	}
}

// duration returns a number of seconds as the configuration writes it, if the key can have that value.
func (p *program) duration(key string, s setting, n, shortest float64) (any, bool) {
	const year = 365 * 24 * 3600
	if !(n >= 0 && n <= year) {
		p.lacks(s, key+" must be from 0 seconds to a year")
		return nil, false
	}
	if n < shortest {
		n = shortest
		table, _, _ := strings.Cut(key, ".")
		p.note(table, s, "the shortest possible is "+inSeconds(n))
	}
	return inSeconds(n), true
}

// inSeconds returns a number of seconds as package config reads it.
func inSeconds(n float64) string {
	if n == float64(int64(n)) {
		return strconv.FormatInt(int64(n), 10) + "s"
	}
	return strconv.FormatFloat(max(n*1000, 0.000001), 'f', -1, 64) + "ms"
}

// aliveFor explains ready.method = "delay".
const aliveFor = "a worker alive for this long counts as ready, even if it fails later: with method = \"notify\" it reports its readiness itself"

// readyAfter sets that a worker is ready when it is alive after a number of seconds.
func (p *program) readyAfter(s setting, n float64) {
	const timeout = 60 // the default of ready.timeout, in seconds
	p.set("ready.method", "delay")
	delay, ok := p.duration("ready.delay", s, max(n, 0), 0)
	if !ok {
		return
	}
	p.set("ready.delay", delay)
	if n > timeout {
		const year = 365 * 24 * 3600
		p.set("ready.timeout", inSeconds(min(n+timeout, year)))
	}
}

// waitsForever sets that a worker is never killed.
func (p *program) waitsForever() {
	p.table("stop").comment(string(p.Kind) + " waits forever for a worker to stop, and so does this: a timeout such as \"60s\" would kill one that hangs.")
	p.set("stop.timeout", "infinity")
	p.set("stop.max_draining", 0)
}

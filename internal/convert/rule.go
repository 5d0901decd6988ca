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

// rule says what becomes of one key. Exactly one field is set, or none: then the key is kept in program.given for code that needs
// several keys.
type rule struct {
	to       target                      // it becomes a key
	none     string                      // it has no equivalent; what to do instead
	unneeded string                      // supervisord behaves like this anyway; why
	when     *switched                   // it is true or false
	do       func(p *program, s setting) // it needs code
}

// target is a key of the configuration, such as "stop.signal", and how a value for it is read.
type target struct {
	key  string
	read reader
}

// switched are the rules for a key that is true or false.
type switched struct{ on, off rule }

// reader reads the value of a setting for a key of the configuration. It returns false, and says why, if there is no such value.
type reader func(p *program, key string, s setting) (any, bool)

func to(key string, read reader) rule          { return rule{to: target{key, read}} }
func none(instead string) rule                 { return rule{none: instead} }
func unneeded(why string) rule                 { return rule{unneeded: why} }
func whether(on, off rule) rule                { return rule{when: &switched{on, off}} }
func code(do func(p *program, s setting)) rule { return rule{do: do} }
func always(key string, value any) rule {
	return rule{to: target{key, func(*program, string, setting) (any, bool) { return value, true }}}
}

// kept is the rule of a key that code reads from program.given.
var kept = rule{}

// commented is the rule of a key that keeps its source from starting the program.
func commented(why string) rule {
	return code(func(p *program, s setting) {
		p.off = true
		p.lacks(s, why)
	})
}

// apply converts a setting by its rule.
func (p *program) apply(r rule, s setting) {
	p.given[s.key] = s
	switch {
	case r.do != nil:
		r.do(p, s)
	case r.none != "":
		p.lacks(s, r.none)
	case r.unneeded != "":
		p.unneeded(s, r.unneeded)
	case r.when != nil:
		if s, ok := p.filled(s); ok {
			if on, ok := p.truth(s); ok && on {
				p.apply(r.when.on, s)
			} else if ok {
				p.apply(r.when.off, s)
			}
		}
	case r.to.key != "":
		if s, ok := p.filled(s); ok {
			if value, ok := r.to.read(p, r.to.key, s); ok {
				p.set(r.to.key, value)
			}
		}
	}
}

// filled is a setting with its variables expanded, for a value that no shell reads.
func (p *program) filled(s setting) (setting, bool) {
	if p.fill == nil {
		return s, true
	}
	return p.fill(s)
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

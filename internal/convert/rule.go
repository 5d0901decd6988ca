package convert

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// rules say what becomes of each key of a source.
type rules map[string]rule

// keys returns rules of which one may be for several keys: "httpd httpd_host httpd_port".
func keys(grouped rules) rules {
	all := rules{}
	for names, r := range grouped {
		for name := range strings.FieldsSeq(names) {
			all[name] = r
		}
	}
	return all
}

// rule says what becomes of one key.
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

// noted is for a key that takes effect elsewhere, and where.
func noted(comment string) rule {
	return func(p *program, s setting) { p.note("", s, comment) }
}

// unneeded is for a key that supervisord needs no equivalent of, and why.
func unneeded(why string) rule { return noted("not needed: " + why) }

// commented is for a key by which the source does not start the program.
func commented(why string) rule {
	return func(p *program, s setting) {
		p.off = true
		p.lacks(s, why)
	}
}

// kept is the rule of a key that code reads from program.given.
func kept(*program, setting) {}

// condition looks at a value. It reports false for ok, after the mistake, if the value is invalid.
type condition func(p *program, s setting) (yes, ok bool)

// when is for a key whose value decides between two rules.
func when(is condition, then, otherwise rule) rule {
	return func(p *program, s setting) {
		if filled, ok := p.filled(s); ok {
			switch yes, ok := is(p, filled); {
			case yes:
				then(p, s)
			case ok:
				otherwise(p, s)
			}
		}
	}
}

// whether is for a key that is true or false.
func whether(on, off rule) rule {
	return when(func(p *program, s setting) (bool, bool) { return p.truth(s) }, on, off)
}

// is compares a value, without regard to case.
func is(value string) condition {
	return func(_ *program, s setting) (yes, ok bool) {
		return strings.EqualFold(strings.TrimSpace(s.value), value), true
	}
}

// atMost compares a number.
func atMost(n int) condition {
	return func(p *program, s setting) (yes, ok bool) {
		i, ok := p.integer(s)
		return ok && i <= n, ok
	}
}

// each converts the keys of a section by rules. Keys that none has go to otherwise.
func (p *program) each(s *section, known rules, otherwise rule) {
	for _, e := range s.entries {
		if !p.quiet {
			p.pending = append(p.pending, e.comments...)
		}
		r, ok := known[e.key]
		switch {
		case e.over != nil:
			p.note("", e.setting, "ignored: set again at "+e.over.String())
		case ok:
			p.apply(r, e.setting)
		default:
			p.apply(otherwise, e.setting)
		}
	}
}

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
	if s, ok := p.get(key); ok {
		on, _ := p.truth(s)
		return on
	}
	return false
}

// The functions below read values. They report one that the source's own supervisor would reject, and return false.

// integer reads a whole number as Python's int() does.
func (d *draft) integer(s setting) (int, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s.value), 10, 32)
	if err != nil {
		d.wrong(s, fmt.Sprintf("%q is not a number", s.value), "write a whole number")
	}
	return int(n), err == nil
}

// number reads a number of seconds, for example, with a fraction.
func (d *draft) number(s setting) (float64, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s.value), 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		d.wrong(s, fmt.Sprintf("%q is not a number", s.value), "write a number such as 10")
		return 0, false
	}
	return n, true
}

// truth reads yes, true, on, 1 and their opposites.
func (d *draft) truth(s setting) (value, ok bool) {
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
func (d *draft) mode(s setting) (uint64, bool) {
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

func asTruth(p *program, _ string, s setting) (any, bool) {
	on, ok := p.truth(s)
	return on, ok
}

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

// oneOf reads words that the source has another word for, without regard to case.
func oneOf(words map[string]string) reader {
	return func(p *program, _ string, s setting) (any, bool) {
		word, ok := words[strings.ToLower(strings.TrimSpace(s.value))]
		if !ok {
			p.wrong(s, fmt.Sprintf("%q is unknown", s.value), "write one of "+strings.Join(slices.Sorted(maps.Keys(words)), ", "))
		}
		return word, ok
	}
}

// asSeconds reads a duration of at least the shortest, in seconds.
func asSeconds(shortest float64) reader {
	return func(p *program, key string, s setting) (any, bool) {
		if n, ok := p.number(s); ok {
			return p.duration(key, s, n, shortest)
		}
		return nil, false
	}
}

// asWholeSeconds is asSeconds for a number that must not have a fraction, and counts as 0 if it is negative.
func asWholeSeconds(shortest float64) reader {
	return func(p *program, key string, s setting) (any, bool) {
		if n, ok := p.integer(s); ok {
			return p.duration(key, s, float64(max(n, 0)), shortest)
		}
		return nil, false
	}
}

const year = 365 * 24 * 3600 // in seconds

// duration returns a number of seconds as the configuration writes it, if the key can have that value.
func (p *program) duration(key string, s setting, n, shortest float64) (any, bool) {
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
	if delay, ok := p.duration("ready.delay", s, max(n, 0), 0); ok {
		p.set("ready.delay", delay)
		if n > timeout {
			p.set("ready.timeout", inSeconds(min(n+timeout, year)))
		}
	}
}

// waitsForever sets that a worker is never killed.
func (p *program) waitsForever() {
	p.table("stop").comment(string(p.Kind) + " waits forever for a worker to stop, and so does this: a timeout such as \"60s\" would kill one that hangs.")
	p.set("stop.timeout", "infinity")
	p.set("stop.max_draining", 0)
}

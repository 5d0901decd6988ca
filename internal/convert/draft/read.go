package draft

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/convert/source"
)

// The functions below read values. They report one that the source's own supervisor would reject, and return false.

// Integer reads a whole number as Python's int() does.
func (d *Draft) Integer(s source.Setting) (int, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s.Value), 10, 32)
	if err != nil {
		d.Wrong(s, fmt.Sprintf("%q is not a number", s.Value), "write a whole number")
	}
	return int(n), err == nil
}

// Number reads a number of seconds, for example, with a fraction.
func (d *Draft) Number(s source.Setting) (float64, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s.Value), 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		d.Wrong(s, fmt.Sprintf("%q is not a number", s.Value), "write a number such as 10")
		return 0, false
	}
	return n, true
}

// Truth reads yes, true, on, 1 and their opposites.
func (d *Draft) Truth(s source.Setting) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(s.Value)) {
	case "yes", "true", "on", "1":
		return true, true
	case "no", "false", "off", "0":
		return false, true
	}
	d.Wrong(s, fmt.Sprintf("%q is neither true nor false", s.Value), "write true or false")
	return false, false
}

// Mode reads octal permissions or a umask.
func (d *Draft) Mode(s source.Setting) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(s.Value), "0o"), 8, 32)
	if err != nil || n > 0o777 {
		d.Wrong(s, fmt.Sprintf("%q is not an octal mode", s.Value), "write an octal number such as 022")
		return 0, false
	}
	return n, true
}

// The readers of rules.

func AsPath(p *Block, _ string, s source.Setting) (any, bool) {
	if s.Value == "" {
		p.Lacks(s, "the path is empty")
		return nil, false
	}
	return p.Path(s.Value), true
}

func AsTruth(p *Block, _ string, s source.Setting) (any, bool) {
	on, ok := p.Truth(s)
	return on, ok
}

func AsMode(p *Block, _ string, s source.Setting) (any, bool) {
	n, ok := p.Mode(s)
	return fmt.Sprintf("%04o", n), ok
}

// AsWorkers reads how many workers a program has.
func AsWorkers(p *Block, _ string, s source.Setting) (any, bool) {
	const most = 10_000
	n, ok := p.Integer(s)
	if ok && (n < 1 || n > most) {
		p.Lacks(s, fmt.Sprintf("workers must be from 1 to %d", most))
		return nil, false
	}
	return n, ok
}

// AsAccount reads a user or a group.
func AsAccount(p *Block, key string, s source.Setting) (any, bool) {
	if s.Value == "" {
		p.Lacks(s, "it is empty")
		return nil, false
	}
	if n, err := strconv.ParseUint(s.Value, 10, 64); err == nil && n >= math.MaxUint32 {
		p.Wrong(s, s.Value+" is not the number of a "+key, "write a number below 4294967295")
		return nil, false
	}
	return s.Value, true
}

// AsSignal reads the name or the number of a signal.
func AsSignal(p *Block, _ string, s source.Setting) (any, bool) {
	name := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(s.Value)), "SIG")
	realTime := strings.HasPrefix(name, "RTM")
	if n, err := strconv.Atoi(name); err == nil {
		name = strings.TrimPrefix(unix.SignalName(syscall.Signal(n)), "SIG")
		realTime = name == "" && n >= 32 && n <= 64
	}
	switch {
	case realTime:
		p.Lacks(s, "supervisord does not send real-time signals: let the program accept TERM, which it sends instead")
	case name != "" && unix.SignalNum("SIG"+name) != 0:
		return name, true
	default:
		p.Wrong(s, fmt.Sprintf("%q is not a signal", s.Value), "write its name, such as TERM")
	}
	return nil, false
}

// OneOf reads words that the source has another word for, without regard to case.
func OneOf(words map[string]string) Reader {
	return func(p *Block, _ string, s source.Setting) (any, bool) {
		word, ok := words[strings.ToLower(strings.TrimSpace(s.Value))]
		if !ok {
			p.Wrong(s, fmt.Sprintf("%q is unknown", s.Value),
				"write one of "+strings.Join(slices.Sorted(maps.Keys(words)), ", "))
		}
		return word, ok
	}
}

// AsWholeSeconds reads a whole number of seconds, of at least the shortest. A negative one counts as 0.
func AsWholeSeconds(shortest float64) Reader {
	return func(p *Block, key string, s source.Setting) (any, bool) {
		if n, ok := p.Integer(s); ok {
			return p.Duration(key, s, float64(max(n, 0)), shortest)
		}
		return nil, false
	}
}

// Year is the longest duration of a configuration, in seconds.
const Year = 365 * 24 * 3600

// Longest is Year as the configuration writes it, for what waits without end under another supervisor.
const Longest = "8760h"

// Duration returns a number of seconds as the configuration writes it, if the key can have that value.
func (p *Block) Duration(key string, s source.Setting, n, shortest float64) (any, bool) {
	if !(n >= 0 && n <= Year) {
		p.Lacks(s, key+" must be from 0 seconds to a year")
		return nil, false
	}
	if n < shortest {
		n = shortest
		table, _, _ := strings.Cut(key, ".")
		p.Note(table, s, "the shortest possible is "+inSeconds(n))
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

// AliveFor explains ready.method = "delay".
const AliveFor = "a worker alive for this long counts as ready, even if it fails later: with method = \"notify\" it " +
	"reports its readiness itself"

// ReadyAfter sets that a worker is ready when it is alive after a number of seconds.
func (p *Block) ReadyAfter(s source.Setting, n float64) {
	const timeout = 60 // the default of ready.timeout, in seconds
	p.Set("ready.method", "delay")
	if delay, ok := p.Duration("ready.delay", s, max(n, 0), 0); ok {
		p.Set("ready.delay", delay)
		if n > timeout {
			p.Set("ready.timeout", inSeconds(min(n+timeout, Year)))
		}
	}
}

// WaitsForever sets that a worker is never killed.
func (p *Block) WaitsForever() {
	p.Table("stop").Comment(string(p.Kind) +
		" waits forever for a worker to stop, and so does this: a timeout such as \"60s\" would kill one that hangs.")
	p.Set("stop.timeout", "infinity")
	p.Set("reload.max_draining", 0)
}

// Bytes reads a size such as 50MB. supervisor's units are powers of 1024.
func (d *Draft) Bytes(s source.Setting) (int64, bool) {
	value, unit := strings.ToLower(strings.TrimSpace(s.Value)), int64(1)
	for suffix, size := range map[string]int64{"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30} {
		if digits, ok := strings.CutSuffix(value, suffix); ok {
			value, unit = strings.TrimSpace(digits), size
		}
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n > math.MaxInt64/unit || n < 0 {
		d.Wrong(s, fmt.Sprintf("%q is not a size", s.Value), "write for example 50MB")
		return 0, false
	}
	return n * unit, true
}

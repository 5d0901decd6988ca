package convert

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
)

// The readers below report a value that the source's own supervisor would refuse, and return false.

// integer reads a whole number as Python's int() does, near enough.
func (d *document) integer(it item) (int, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(it.value), 10, 32)
	if err != nil {
		d.wrong(it, fmt.Sprintf("%q is no number", it.value), "write a whole number")
	}
	return int(n), err == nil
}

// number reads a number with a fraction, of seconds for example.
func (d *document) number(it item) (float64, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(it.value), 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		d.wrong(it, fmt.Sprintf("%q is no number", it.value), "write a number such as 10")
		return 0, false
	}
	return n, true
}

// truth reads yes, true, on, 1 and their opposites.
func (d *document) truth(it item) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(it.value)) {
	case "yes", "true", "on", "1":
		return true, true
	case "no", "false", "off", "0":
		return false, true
	}
	d.wrong(it, fmt.Sprintf("%q is neither true nor false", it.value), "write true or false")
	return false, false
}

// permissions reads an octal number of permissions or a umask.
func (d *document) permissions(it item) (string, bool) {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(it.value), "0o"), 8, 32)
	if err != nil || n > 0o777 {
		d.wrong(it, fmt.Sprintf("%q are no permissions", it.value), "write an octal number such as 022")
		return "", false
	}
	return fmt.Sprintf("%04o", n), true
}

// signal reads the name or the number of a signal. One that supervisord cannot send is "", true.
func (d *document) signal(it item) (string, bool) {
	value := strings.ToUpper(strings.TrimSpace(it.value))
	if n, err := strconv.Atoi(value); err == nil {
		name := unix.SignalName(syscall.Signal(n))
		if name == "" && (n < 1 || n > 64) {
			d.wrong(it, fmt.Sprintf("%q is no signal", it.value), "write its name, such as TERM")
			return "", false
		}
		return strings.TrimPrefix(name, "SIG"), true
	}
	name := strings.TrimPrefix(value, "SIG")
	switch {
	case unix.SignalNum("SIG"+name) != 0:
		return name, true
	case strings.HasPrefix(name, "RTM"):
		return "", true
	}
	d.wrong(it, fmt.Sprintf("%q is no signal", it.value), "write its name, such as TERM")
	return "", false
}

// stopSignal writes the signal that asks a worker to go.
func (p *program) stopSignal(it item) {
	name, ok := p.doc.signal(it)
	switch {
	case !ok:
	case name == "":
		p.lacks(it, "real-time signals are not sent: let the program take TERM, which is sent instead")
	default:
		p.set("stop", "signal", name)
	}
}

// variable writes a variable of the program's own; false: it cannot have one of this name.
func (p *program) variable(it item, name, value string) bool {
	const longest = 255 // package config bounds the length of a full name
	err := config.CheckVariable(name)
	switch {
	case err != nil:
		p.lacks(it, err.Error())
	case len(name) > longest:
		p.lacks(it, fmt.Sprintf("the name of a variable has at most %d bytes", longest))
	default:
		p.set("environment", name, value)
		return true
	}
	return false
}

// exportable reports whether a shell can set a variable of this name.
func exportable(name string) bool { return config.CheckVariable(name) == nil }

// commandWords takes a command line apart and reports what is wrong with it.
func (d *document) commandWords(it item, t text) ([]text, bool) {
	words, err := split(t, false)
	switch {
	case err != nil:
		remedy := "close it"
		for _, c := range it.comments {
			remedy = fmt.Sprintf("close it; what follows a space and ; or # (%q) is a comment to %s, also in quotes", shorten(c), d.Kind)
		}
		d.wrong(it, err.Error(), remedy)
	case len(words) == 0 || len(words[0]) == 0:
		d.wrong(it, "is empty", "write the program and its arguments")
	default:
		return words, true
	}
	return nil, false
}

// owner writes a user or group as "user" or "group", unless it is empty.
func (p *program) owner(it item, key string) {
	if it.value == "" {
		p.lacks(it, "it is empty")
		return
	}
	if n, err := strconv.ParseUint(it.value, 10, 64); err == nil && n >= math.MaxUint32 {
		p.wrong(it, it.value+" is no number of a "+key, "write one below 4294967295")
		return
	}
	p.set("", key, it.value)
}

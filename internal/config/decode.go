package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tomlFile is one file while it is decoded.
type tomlFile struct {
	file      string // absolute
	dir       string // its folder: relative paths start here
	positions positions
	problems  []Problem
	warnings  []Problem
	typos     map[string]bool // full names of known keys, where something like them is written
}

// value is something in a document, and its full name, by which its position is found.
type value struct {
	in   *tomlFile
	path string
	raw  any // as the decoder returned it; nil: not set
}

// fields is the table of the keys that a TOML table may have, and how each is read into T. It is the only list of these keys.
type fields[T any] map[string]func(into *T, v value)

// decode reads the table v into into. What is not set keeps its value: the default.
func decode[T any](v value, into *T, known fields[T]) bool {
	table, ok := v.raw.(map[string]any)
	if !ok {
		remedy := "write it as [" + v.path + "]"
		if strings.HasSuffix(v.path, "]") {
			remedy = "write { key = value, … }"
		}
		v.problem("is "+typeOf(v.raw)+", not a table", "%s", remedy)
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if read, ok := known[name]; ok {
			read(into, v.child(name))
		} else {
			v.unknown(name, slices.Sorted(maps.Keys(known)))
		}
	}
	return true
}

// unknown reports a key of the table v that does not exist, with what was probably meant.
func (v value) unknown(name string, known []string) {
	remedy := "known here are " + strings.Join(known, ", ")
	k, ok := nearest(name, known)
	if ok {
		remedy = fmt.Sprintf("did you mean %s?", k)
	}
	if i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
		k, ok, remedy = known[i], true, "keys are written in small letters: "+known[i]
	}
	if ok {
		v.in.typos[child(v.path, k)] = true
	}
	v.child(name).problem("unknown key", "%s", remedy)
}

// problem reports what is wrong with v.
func (v value) problem(what, remedy string, args ...any) {
	v.in.problems = append(v.in.problems, v.note(what, fmt.Sprintf(remedy, args...)))
}

// warn reports what is doubtful about v.
func (v value) warn(what, remedy string, args ...any) {
	v.in.warnings = append(v.in.warnings, v.note(what, fmt.Sprintf(remedy, args...)))
}

// useless reports the key of the table v if it is set where it has no effect.
func (v value) useless(key string, without bool, condition, remedy string, args ...any) {
	if without && v.has(key) {
		v.child(key).problem("does nothing "+condition, remedy, args...)
	}
}

func (v value) note(what, remedy string) Problem {
	return Problem{File: v.in.file, Line: v.line(), Key: v.path, What: what, Remedy: remedy}
}

// line is where v is written, or the table that should contain it.
func (v value) line() int { return v.in.positions.of(v.path).line }

// child is a key of the table v; its raw is nil if it is not set.
func (v value) child(name string) value {
	table, _ := v.raw.(map[string]any)
	return value{in: v.in, path: child(v.path, name), raw: table[name]}
}

// has reports whether the table v has the key.
func (v value) has(name string) bool { return v.child(name).raw != nil }

// lacks reports whether the table v has neither the key nor an unknown one that is probably a typo of it, which has been reported.
func (v value) lacks(name string) bool { return !v.has(name) && !v.in.typos[child(v.path, name)] }

// elements are the elements of the array v, which may be written [[v]] or [{…}, {…}]; false: v is not an array.
func (v value) elements() ([]value, bool) {
	var values []value
	add := func(raw any) { values = append(values, value{in: v.in, path: element(v.path, len(values)), raw: raw}) }
	switch array := v.raw.(type) {
	case []any:
		for _, raw := range array {
			add(raw)
		}
	case []map[string]any:
		for _, raw := range array {
			add(raw)
		}
	default:
		return nil, false
	}
	return values, true
}

// oneOrMore are the elements of the array v, or v alone.
func (v value) oneOrMore() []value {
	if items, ok := v.elements(); ok {
		return items
	}
	return []value{v}
}

// typeOf is what a person calls the type of a decoded value.
func typeOf(raw any) string {
	switch raw.(type) {
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case []any, []map[string]any:
		return "an array"
	case map[string]any:
		return "a table"
	default:
		return "a date or time"
	}
}

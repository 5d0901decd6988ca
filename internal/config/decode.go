package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// document is one file while it is decoded.
type document struct {
	file     string // absolute
	dir      string // its folder: what relative paths in it are relative to
	places   places
	problems []Problem
	warnings []Problem
	typos    map[string]bool // full names of known keys, where something like them is written
}

// value is something in a document: what it is, and its full name, by which its place is found.
type value struct {
	in   *document
	path string
	raw  any // as the parser made it; nil: it is not there
}

// fields is the table of the keys that a TOML table may have, and how each is read into T. It is the only list of these keys.
type fields[T any] map[string]func(into *T, v value)

// decode reads the table v into into. What is missing keeps the value that it has: the default.
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
		read, ok := known[name]
		if !ok {
			v.unknown(name, slices.Sorted(maps.Keys(known)))
			continue
		}
		read(into, v.child(name))
	}
	return true
}

// unknown reports a key of the table v that does not exist, with what was probably meant.
func (v value) unknown(name string, known []string) {
	at := v.child(name)
	for _, k := range known {
		if strings.EqualFold(k, name) {
			v.in.typos[child(v.path, k)] = true
			at.problem("unknown key", "keys are written in small letters: %s", k)
			return
		}
	}
	if k, ok := nearest(name, known); ok {
		v.in.typos[child(v.path, k)] = true
		at.problem("unknown key", "did you mean %s?", k)
		return
	}
	at.problem("unknown key", "known here are %s", strings.Join(known, ", "))
}

// problem reports what is wrong with v.
func (v value) problem(what, remedy string, args ...any) {
	v.in.problems = append(v.in.problems, v.note(what, fmt.Sprintf(remedy, args...)))
}

// warn reports what is doubtful about v.
func (v value) warn(what, remedy string, args ...any) {
	v.in.warnings = append(v.in.warnings, v.note(what, fmt.Sprintf(remedy, args...)))
}

func (v value) note(what, remedy string) Problem {
	return Problem{File: v.in.file, Line: v.line(), Key: v.path, What: what, Remedy: remedy}
}

// line is where v stands, or where the table stands that should have it.
func (v value) line() int { return v.in.places.at(v.path).line }

// child is a key of the table v; its raw is nil if it is not there.
func (v value) child(name string) value {
	table, _ := v.raw.(map[string]any)
	return value{in: v.in, path: child(v.path, name), raw: table[name]}
}

// has reports whether the table v has the key.
func (v value) has(name string) bool { return v.child(name).raw != nil }

// lacks reports whether the table v has neither the key nor an unknown one that is probably a typo of it, which has been reported.
func (v value) lacks(name string) bool { return !v.has(name) && !v.in.typos[child(v.path, name)] }

// elements are the elements of the array v, which may be written [[v]] or [{…}, {…}]; false: it is no array.
func (v value) elements() ([]value, bool) {
	var raws []any
	switch array := v.raw.(type) {
	case []any:
		raws = array
	case []map[string]any:
		for _, table := range array {
			raws = append(raws, table)
		}
	default:
		return nil, false
	}
	values := make([]value, len(raws))
	for i, raw := range raws {
		values[i] = value{in: v.in, path: element(v.path, i), raw: raw}
	}
	return values, true
}

// typeOf is what a person calls the type of a parsed value.
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

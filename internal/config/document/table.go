package document

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Fields is the table of the keys that a TOML table may have, and how each is read into T. It is the only list of these
// keys.
type Fields[T any] map[string]func(into *T, v Value)

// Decode reads the table v into into. What is not set keeps its value: the default.
func Decode[T any](v Value, into *T, known Fields[T]) bool {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		remedy := "write it as [" + v.Key + "]"
		if strings.HasSuffix(v.Key, "]") {
			remedy = "write { key = value, … }"
		}
		if v.In.Scalar != nil {
			remedy = cmp.Or(v.In.Scalar(v), remedy)
		}
		v.Problem("is "+TypeOf(v.Raw)+", not a table", "%s", remedy)
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if read, ok := known[name]; ok {
			read(into, v.Child(name))
		} else {
			v.unknown(name, slices.Sorted(maps.Keys(known)))
		}
	}
	return true
}

// unknown reports a key of the table v that does not exist, with what was probably meant.
func (v Value) unknown(name string, known []string) {
	remedy := "known here are " + strings.Join(known, ", ")
	meant := ""
	same := slices.IndexFunc(known, func(k string) bool { return Plain(k) == Plain(name) })
	if same >= 0 {
		meant, remedy = Key(v.Key, known[same]), v.respelt(name, known[same])
	} else if v.In.Unknown != nil {
		if key, text := v.In.Unknown(v, name); text != "" {
			meant, remedy = key, text
		}
	}
	if k, ok := Nearest(name, known); ok && meant == "" && strings.HasPrefix(remedy, "known") {
		meant, remedy = Key(v.Key, k), fmt.Sprintf("did you mean %s?", k)
	}
	v.In.typos[meant] = true
	v.Child(name).Problem("unknown key", "%s", remedy)
}

// respelt is the remedy for a key in another spelling than the known one.
func (v Value) respelt(name, known string) string {
	raw := v.Child(name).Raw
	if _, isTable := raw.(map[string]any); isTable {
		return "keys are written with small letters and _: " + known
	}
	if v.In.Scalar != nil {
		if text := v.In.Scalar(Value{In: v.In, Key: Key(v.Key, known), Raw: raw}); text != "" {
			return text
		}
	}
	return "keys are written with small letters and _: " + known + " = " + TOML(raw)
}

// Plain is a key in lower case without dashes and underscores, as two programs may write the same key.
func Plain(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
}

// Problem reports what is wrong with v.
func (v Value) Problem(what, remedy string, args ...any) { v.report("", what, remedy, args) }

// Warn reports what is doubtful about v.
func (v Value) Warn(what, remedy string, args ...any) { v.report(Warning, what, remedy, args) }

func (v Value) report(severity Severity, what, remedy string, args []any) {
	v.In.Report(Problem{File: v.In.File, Position: v.Position(), Severity: severity, Key: v.Key, What: what,
		Remedy: fmt.Sprintf(remedy, args...)})
}

// Useless reports the key of the table v if it is set where it has no effect.
func (v Value) Useless(key string, without bool, condition, remedy string, args ...any) {
	if without && v.Has(key) {
		v.Child(key).Problem("does nothing "+condition, remedy, args...)
	}
}

// Position is where v is written, or the table that should contain it.
func (v Value) Position() Position { return v.In.Positions.Of(v.Key) }

// Line is that of Position.
func (v Value) Line() int { return v.Position().Line }

// Child is a key of the table v; its Raw is nil if it is not set.
func (v Value) Child(name string) Value {
	table, _ := v.Raw.(map[string]any)
	return Value{In: v.In, Key: Key(v.Key, name), Raw: table[name]}
}

// Has reports whether the table v has the key.
func (v Value) Has(name string) bool { return v.Child(name).Raw != nil }

// Lacks reports whether the table v has neither the key nor an unknown one that is probably a typo of it, which has
// been reported.
func (v Value) Lacks(name string) bool { return !v.Has(name) && !v.In.typos[Key(v.Key, name)] }

// Elements are the elements of the array v, which may be written [[v]] or [{…}, {…}]; false: v is not an array.
func (v Value) Elements() ([]Value, bool) {
	var values []Value
	add := func(raw any) { values = append(values, Value{In: v.In, Key: element(v.Key, len(values)), Raw: raw}) }
	switch array := v.Raw.(type) {
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

// OneOrMore are the elements of the array v, or v alone.
func (v Value) OneOrMore() []Value {
	if items, ok := v.Elements(); ok {
		return items
	}
	return []Value{v}
}

// TypeOf is what a person calls the type of a decoded value.
func TypeOf(raw any) string {
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

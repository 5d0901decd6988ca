package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxDuration bounds every duration, so that sums of them cannot overflow: a year.
const maxDuration = 365 * 24 * time.Hour

// The readers below set their target only when the value is right; otherwise they report what is wrong and leave the default.
// Strings are cloned: what the parser returns are pieces of the whole file, which would keep it in memory.

// text reads a string that is not empty.
func (v value) text(into *string) bool {
	s, ok := v.raw.(string)
	switch {
	case !ok:
		v.problem("is "+typeOf(v.raw)+", not a string", "write it in quotes")
	case s == "":
		v.problem("is empty", "give it a value, or leave the key out")
	case strings.Contains(s, "\x00"):
		v.problem("has a NUL character", "remove it")
	default:
		*into = strings.Clone(s)
		return true
	}
	return false
}

// choice reads one of a few words.
func choice[S ~string](v value, into *S, options ...S) bool {
	var s string
	if !v.text(&s) {
		return false
	}
	if slices.Contains(options, S(s)) {
		*into = S(s)
		return true
	}
	words := make([]string, len(options))
	for i, o := range options {
		words[i] = strconv.Quote(string(o))
	}
	last := len(words) - 1
	v.problem(fmt.Sprintf("%q is not known", s), "write %s or %s", strings.Join(words[:last], ", "), words[last])
	return false
}

// flag reads true or false.
func (v value) flag(into *bool) bool {
	b, ok := v.raw.(bool)
	if ok {
		*into = b
	} else {
		v.problem("is "+typeOf(v.raw)+", not true or false", "write true or false, without quotes")
	}
	return ok
}

// integer reads an integer within bounds.
func (v value) integer(into *int, low, high int) bool {
	n, ok := v.raw.(int64)
	switch {
	case !ok:
		v.problem("is "+typeOf(v.raw)+", not an integer", "write a number from %d to %d, without quotes", low, high)
	case n < int64(low) || n > int64(high):
		v.problem(fmt.Sprintf("%d is out of range", n), "write a number from %d to %d", low, high)
	default:
		*into = int(n)
		return true
	}
	return false
}

// duration reads a string such as "30s" that is at least low.
func (v value) duration(into *time.Duration, low time.Duration) bool {
	if n, ok := v.raw.(int64); ok {
		v.problem("is a number without a unit", "write \"%ds\"", n)
		return false
	}
	var s string
	if !v.text(&s) {
		return false
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		v.problem(fmt.Sprintf("%q is no duration", s), `write a number and its unit, such as "500ms", "30s" or "1h30m"`)
	case d < low || d > maxDuration:
		v.problem(fmt.Sprintf("%q is out of range", s), `write a duration from "%s" to "%s"`, brief(low), brief(maxDuration))
	default:
		*into = d
		return true
	}
	return false
}

// brief is a duration without the zeros at its end: "8760h", not "8760h0m0s".
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// seconds reads a duration of whole seconds, which is what some socket options count in.
func (v value) seconds(into *time.Duration, high time.Duration) {
	var d time.Duration
	switch {
	case !v.duration(&d, time.Second):
	case d%time.Second != 0 || d > high:
		v.problem(fmt.Sprintf("%s cannot be set", d), `write whole seconds, from "1s" to "%s"`, brief(high))
	default:
		*into = d
	}
}

// texts reads an array of strings; a single string stands for an array of one.
func (v value) texts(into *[]string) bool {
	items, ok := v.elements()
	if !ok {
		items = []value{v}
	}
	list := make([]string, len(items))
	all := true
	for i, item := range items {
		all = item.text(&list[i]) && all
	}
	if all {
		*into = list
	}
	return all
}

// argv reads a command: an array of its words. Only the first must not be empty.
func (v value) argv(into *[]string) bool {
	if line, ok := v.raw.(string); ok {
		v.problem("is a string", "write %s = %s", v.path[strings.LastIndex(v.path, ".")+1:], asArray(line))
		return false
	}
	items, ok := v.elements()
	if !ok || len(items) == 0 {
		v.problem("is not an array of words", `write the program and its arguments, such as ["./web", "-v"]`)
		return false
	}
	argv := make([]string, len(items))
	for i, item := range items {
		if item.raw == "" && i > 0 {
			continue
		}
		if !item.text(&argv[i]) {
			return false
		}
	}
	*into = argv
	return true
}

// asArray is the array that says what a command line says; a shell's if it needs a shell.
func asArray(line string) string {
	words := strings.Fields(line)
	if len(words) == 0 {
		words = []string{"./web", "-v"}
	}
	if strings.ContainsAny(line, "|&;<>()$`\\\"'*?[]#~%\n") {
		words = []string{"sh", "-c", "exec " + line}
	}
	for i, word := range words {
		words[i] = strconv.Quote(word)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// file reads a path, which is relative to the folder of the document.
func (v value) file(into *string) bool {
	var s string
	if !v.text(&s) {
		return false
	}
	*into = absolute(v.in.dir, s)
	return true
}

// files reads an array of paths, or one path.
func (v value) files(into *[]string) bool {
	var list []string
	if !v.texts(&list) {
		return false
	}
	for i, path := range list {
		list[i] = absolute(v.in.dir, path)
	}
	*into = list
	return true
}

// absolute is path as seen from dir.
func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

package document

import (
	"fmt"
	"maps"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/BurntSushi/toml"
	"golang.org/x/sys/unix"
)

// maxDuration bounds every duration, so that sums of them cannot overflow: a year.
const maxDuration = 365 * 24 * time.Hour

// The readers below set their target only if the value is right; otherwise they report what is wrong and leave the
// default. Strings are cloned: those of the decoder are pieces of the whole file, which would stay in memory with them.

// Text reads a string that is not empty.
func (v Value) Text(into *string) bool {
	s, ok := v.Raw.(string)
	switch {
	case !ok:
		v.Problem("is "+TypeOf(v.Raw)+", not a string", "write it in quotes")
	case s == "":
		v.Problem("is empty", "give it a value, or leave the key out")
	case strings.Contains(s, "\x00"):
		v.Problem("has a NUL character", "remove it")
	default:
		*into = strings.Clone(s)
		return true
	}
	return false
}

// Wrong is why a text is not a value, and what to write instead.
type Wrong struct{ What, Remedy string }

// Parsed reads a text with a function.
func Parsed[T any](v Value, into *T, parse func(text string) (T, *Wrong)) bool {
	var text string
	if !v.Text(&text) {
		return false
	}
	value, wrong := parse(text)
	if wrong != nil {
		v.Problem(wrong.What, "%s", wrong.Remedy)
		return false
	}
	*into = value
	return true
}

// Choice reads one of a few words.
func Choice[S ~string](v Value, into *S, options ...S) bool {
	return Parsed(v, into, func(s string) (S, *Wrong) {
		if slices.Contains(options, S(s)) {
			return S(s), nil
		}
		var known, quoted []string
		for _, o := range options {
			known, quoted = append(known, string(o)), append(quoted, strconv.Quote(string(o)))
		}
		remedy := "write " + List(quoted, " or ")
		if near, ok := Nearest(s, known); ok && near[0] == s[0] {
			remedy = fmt.Sprintf("did you mean %q? known are %s", near, List(quoted, " and "))
		}
		return "", &Wrong{fmt.Sprintf("%q is not known", s), remedy}
	})
}

// List enumerates words, with this before the last one: "a, b and c".
func List(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	end := len(words) - 1
	return strings.Join(words[:end], ", ") + last + words[end]
}

// Flag reads true or false.
func (v Value) Flag(into *bool) bool {
	b, ok := v.Raw.(bool)
	if ok {
		*into = b
	} else {
		v.Problem("is "+TypeOf(v.Raw)+", not true or false", "write true or false, without quotes")
	}
	return ok
}

// Integer reads an integer within bounds.
func (v Value) Integer(into *int, low, high int) bool {
	n, ok := v.Raw.(int64)
	switch {
	case !ok:
		v.Problem("is "+TypeOf(v.Raw)+", not an integer", "write a number from %d to %d, without quotes", low, high)
	case n < int64(low) || n > int64(high):
		v.Problem(fmt.Sprintf("%d is out of range", n), "write a number from %d to %d", low, high)
	default:
		*into = int(n)
		return true
	}
	return false
}

// Duration reads a string such as "30s" that is at least low.
func (v Value) Duration(into *time.Duration, low time.Duration) bool {
	if n, ok := v.Raw.(int64); ok {
		v.Problem("is a number without a unit", "write \"%ds\"", n)
		return false
	}
	return Parsed(v, into, func(s string) (time.Duration, *Wrong) {
		d, err := time.ParseDuration(s)
		switch meant := DurationMeant(s); {
		case err != nil && meant != "":
			return 0, &Wrong{fmt.Sprintf("%q is not a duration", s), fmt.Sprintf("did you mean %q?", meant)}
		case err != nil:
			return 0, &Wrong{fmt.Sprintf("%q is not a duration", s),
				`write a number and its unit, such as "500ms", "30s" or "1h30m"`}
		case d < low || d > maxDuration:
			return 0, &Wrong{fmt.Sprintf("%q is out of range", s), fmt.Sprintf(`write a duration from "%s" to "8760h"`, low)}
		}
		return d, nil
	})
}

// timeUnits are units as other programs write them.
var timeUnits = map[string]string{
	"": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "m", "mins": "m", "minute": "m",
	"minutes": "m",
	"hr":      "h", "hour": "h", "hours": "h", "msec": "ms", "millisecond": "ms", "milliseconds": "ms",
}

// DurationMeant returns how a duration with the unit of another program is written here; "": it is not known.
func DurationMeant(s string) string {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	word := strings.ToLower(strings.TrimSpace(s[digits:]))
	if days, err := strconv.Atoi(s[:digits]); err == nil && days <= 365 &&
		(word == "d" || word == "day" || word == "days") {
		return strconv.Itoa(24*days) + "h"
	}
	unit, known := timeUnits[word]
	if _, err := time.ParseDuration("1" + word); err == nil {
		unit, known = word, true
	}
	if digits == 0 || !known {
		return ""
	}
	return s[:digits] + unit
}

// Seconds reads a duration of whole seconds, the unit of some socket options.
func (v Value) Seconds(into *time.Duration, high time.Duration) {
	var d time.Duration
	switch {
	case !v.Duration(&d, time.Second):
	case d%time.Second != 0 || d > high:
		v.Problem(fmt.Sprintf("%s cannot be set", d), `write whole seconds, from "1s" to "%gs"`, high.Seconds())
	default:
		*into = d
	}
}

// Texts reads an array of strings; a single string stands for an array of one.
func (v Value) Texts(into *[]string) bool {
	items := v.OneOrMore()
	list := make([]string, len(items))
	all := true
	for i, item := range items {
		all = item.Text(&list[i]) && all
	}
	if all {
		*into = list
	}
	return all
}

// Argv reads a command: an array of its words. Only the first must not be empty.
func (v Value) Argv(into *[]string) bool {
	if line, ok := v.Raw.(string); ok {
		v.Problem("is a string", "write %s = %s", v.Key[strings.LastIndex(v.Key, ".")+1:], Command(line))
		return false
	}
	items, _ := v.Elements()
	if len(items) == 0 {
		v.Problem("is not an array of words", `write the program and its arguments, such as ["./web", "-v"]`)
		return false
	}
	argv := make([]string, len(items))
	for i, item := range items {
		if (item.Raw != "" || i == 0) && !item.Text(&argv[i]) {
			return false
		}
	}
	*into = argv
	return true
}

// Command writes a command line as an array in TOML; one that runs a shell if the line needs a shell.
func Command(line string) string {
	words := strings.Fields(line)
	if len(words) == 0 {
		words = []string{"./web", "-v"}
	}
	if strings.ContainsAny(line, "|&;<>()$`\\\"'*?[]#~%\n") {
		words = []string{"sh", "-c", ExecLast(line)}
	}
	for i, word := range words {
		words[i] = strconv.Quote(word)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// ExecLast puts exec before the last command of a list, so that the worker is the program and not the shell. It cannot
// for a pipe.
func ExecLast(line string) string {
	at := 0
	for _, separator := range []string{"&&", ";"} {
		if i := strings.LastIndex(line, separator); i >= 0 {
			at = max(at, i+len(separator))
		}
	}
	last := strings.TrimSpace(line[at:])
	if last == "" || strings.Contains(strings.ReplaceAll(line, "&&", ""), "|") || strings.HasSuffix(last, "&") ||
		strings.HasPrefix(last, "exec ") {
		return line
	}
	return strings.TrimSpace(line[:at] + " exec " + last)
}

// Path reads a path, which is relative to the folder of the document.
func (v Value) Path(into *string) bool {
	ok := v.Text(into)
	if ok {
		*into = Absolute(v.In.Dir, *into)
	}
	return ok
}

// Paths reads an array of paths, or one path.
func (v Value) Paths(into *[]string) {
	if v.Texts(into) {
		for i, path := range *into {
			(*into)[i] = Absolute(v.In.Dir, path)
		}
	}
}

// Absolute is path as seen from dir.
func Absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// sizeUnits are the units of sizes. A size without a unit is in bytes.
var sizeUnits = map[string]uint64{
	"": 1, "B": 1,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// Size reads a number of bytes, or a string with a unit such as "512MiB": at least low, and a multiple of step, which
// is 1 or whole MiB.
func (v Value) Size(into *uint64, low, step uint64) bool {
	n, isNumber := v.Raw.(int64)
	size := uint64(n)
	switch {
	case !isNumber && !Parsed(v, &size, parseSize):
		return false
	case n < 0 || size < low:
		v.Problem(fmt.Sprintf("%v is out of range", v.Raw), `write a size such as "512MiB"`)
		return false
	case size%step != 0:
		v.Problem(fmt.Sprintf("%v is not a multiple of %dMiB", v.Raw, step>>20), `write such as "%dMiB"`, size>>20)
		return false
	}
	*into = size
	return true
}

// parseSize reads a size in bytes with a unit.
func parseSize(s string) (uint64, *Wrong) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	unit := strings.TrimSpace(s[digits:])
	factor, known := sizeUnits[unit]
	n, err := strconv.ParseUint(s[:digits], 10, 64)
	over, size := bits.Mul64(n, factor)
	switch {
	case known && err == nil && over == 0 && size < 1<<63:
		return size, nil
	case !known && err == nil && strings.Contains("KMGTkmgt", unit[:1]):
		return 0, &Wrong{fmt.Sprintf("%q is not a size", s),
			fmt.Sprintf("did you mean %q?", s[:digits]+strings.ToUpper(unit[:1])+"iB")}
	case known && err == nil:
		return 0, &Wrong{fmt.Sprintf("%q is too large", s), `write a size such as "512MiB"`}
	}
	return 0, &Wrong{fmt.Sprintf("%q is not a size", s), `write a size such as "512MiB"`}
}

// Signal reads the name of a signal, with or without SIG, in upper or lower case.
func (v Value) Signal(into *syscall.Signal) {
	if n, ok := v.Raw.(int64); ok {
		v.Problem(fmt.Sprintf("%d is a number", n), `write the name of the signal, such as "TERM"`)
		return
	}
	Parsed(v, into, func(s string) (syscall.Signal, *Wrong) {
		name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
		sig := unix.SignalNum("SIG" + name)
		if sig != 0 {
			return sig, nil
		}
		if near, ok := Nearest(name, signalNames()); ok {
			return 0, &Wrong{fmt.Sprintf("%q is not a signal", s), fmt.Sprintf("did you mean %q?", near)}
		}
		return 0, &Wrong{fmt.Sprintf("%q is not a signal", s), `write its name, such as "TERM", "QUIT" or "USR1"`}
	})
}

// signalNames are the names of the signals that are not real-time signals, without SIG.
func signalNames() (names []string) {
	for n := syscall.Signal(1); n < 32; n++ {
		names = append(names, strings.TrimPrefix(unix.SignalName(n), "SIG"))
	}
	return names
}

// Octal reads permission bits: "0660", or 0o660. A decimal number is refused, because 660 does not mean what it seems
// to.
func (v Value) Octal(into *uint32) bool {
	var n uint64
	var err error
	switch raw := v.Raw.(type) {
	case string:
		if n, err = strconv.ParseUint(strings.TrimPrefix(raw, "0o"), 8, 32); err != nil {
			v.Problem(fmt.Sprintf("%q is not an octal number", raw), `write it such as "0660"`)
			return false
		}
	case int64:
		if !v.Position().octal && raw != 0 {
			v.Problem(fmt.Sprintf("%d is a decimal number", raw), `write "%04d" or 0o%03d`, raw, raw)
			return false
		}
		n = uint64(raw)
	default:
		v.Problem("is "+TypeOf(v.Raw)+", not an octal number", `write it such as "0660"`)
		return false
	}
	if n > 0o777 {
		v.Problem(fmt.Sprintf("%#o is out of range", n), `write "0000" to "0777"`)
		return false
	}
	*into = uint32(n)
	return true
}

// Quote writes a string in TOML. What is not UTF-8, which a TOML file cannot contain, becomes U+FFFD.
func Quote(s string) string { return TOML(strings.ToValidUTF8(s, "\ufffd")) }

// TOML writes a decoded value, or a list of strings, in TOML, on one line.
func TOML(raw any) string {
	var parts []string
	switch raw := raw.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(raw)) {
			parts = append(parts, Key("", name)+" = "+TOML(raw[name]))
		}
		if len(parts) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case []any, []map[string]any:
		items, _ := Value{Raw: raw}.Elements()
		for _, item := range items {
			parts = append(parts, TOML(item.Raw))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	text, _ := toml.Marshal(map[string]any{"v": raw}) // it fails for what no TOML file contains
	return strings.TrimSuffix(strings.TrimPrefix(string(text), "v = "), "\n")
}

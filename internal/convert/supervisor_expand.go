package convert

import (
	"fmt"
	"strconv"
	"strings"

	"example.org/supervisord/internal/pattern"
)

// formatted is a %(…) of Python in a value: %(name), flags, width, precision, and a letter.
type formatted struct{ name, flags, letter string }

// formatFlags are the flags, the width and the precision that both Python and Go take, up to 99.
var formatFlags = pattern.Lazy(`^[-+# 0]{0,4}([1-9][0-9]?)?(\.[0-9]{1,2})?$`)

// formatError is a value that Python's % would not take.
type formatError struct{ what, remedy string }

func (e *formatError) Error() string { return e.what }

// expand puts values in place of %(name)s as Python does. What only a shell can know stays as such.
func expand(value string, at int, known func(name string) (text, bool)) (text, *formatError) {
	var t text
	for i, line := 0, at; i < len(value); {
		rest := value[i:]
		next := strings.IndexByte(rest, '%')
		if next != 0 {
			if next < 0 {
				next = len(rest)
			}
			for _, r := range rest[:next] {
				t = append(t, atom{r: r, line: line})
			}
			line += strings.Count(rest[:next], "\n")
			i += next
			continue
		}
		if strings.HasPrefix(rest, "%%") {
			t, i = append(t, atom{r: '%', line: line}), i+2
			continue
		}
		f, n, err := format(rest)
		if err != nil {
			return nil, err
		}
		found, ok := known(f.name)
		if !ok {
			return nil, &formatError{fmt.Sprintf("%%(%s) is not known", f.name), "write one that supervisor knows here, or the value"}
		}
		if found, err = f.apply(found); err != nil {
			return nil, err
		}
		t, i = append(t, found...), i+n
	}
	return t, nil
}

// format reads what begins with %. It returns how long that is.
func format(s string) (formatted, int, *formatError) {
	bad := &formatError{fmt.Sprintf("%q is no format that supervisor takes", shorten(s[:min(len(s), 12)])), "write %% for a percent sign"}
	if !strings.HasPrefix(s, "%(") {
		return formatted{}, 0, bad
	}
	end := strings.IndexByte(s, ')')
	if end < 0 {
		return formatted{}, 0, bad
	}
	rest := s[end+1:]
	n := len(rest) - len(strings.TrimLeft(rest, "0123456789.-+# "))
	if n >= len(rest) || !formatFlags().MatchString(rest[:n]) || !strings.Contains("sdiuxXo", rest[n:n+1]) {
		return formatted{}, 0, bad
	}
	return formatted{name: s[2:end], flags: rest[:n], letter: rest[n : n+1]}, end + 1 + n + 1, nil
}

// apply formats a value.
func (f formatted) apply(t text) (text, *formatError) {
	if t.dynamic() {
		if f.flags != "" || f.letter != "s" {
			return nil, &formatError{fmt.Sprintf("%%(%s)%s%s is only known when the program starts", f.name, f.flags, f.letter), "write %(" + f.name + ")s"}
		}
		return t, nil
	}
	value := t.String()
	if f.letter == "s" {
		return plain(fmt.Sprintf("%"+strings.TrimLeft(strings.Trim(f.flags, "+# "), "0+# ")+"s", value)), nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || !numeric(f.name) {
		return nil, &formatError{fmt.Sprintf("%%(%s)%s%s needs a number", f.name, f.flags, f.letter), "write %(" + f.name + ")s"}
	}
	letter := f.letter
	if letter == "i" || letter == "u" {
		letter = "d"
	}
	return plain(fmt.Sprintf("%"+f.flags+letter, n)), nil
}

// numeric reports whether supervisor has a number for a name, and not digits.
func numeric(name string) bool { return name == "process_num" || name == "numprocs" }

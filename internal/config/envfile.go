package config

import (
	"errors"
	"fmt"
	"strings"

	"example.org/supervisord/socket/dialect"
)

// environmentText is an environment file while it is read.
type environmentText struct {
	rest     string // what is still to be read
	line     int    // where rest begins
	dialects []dialect.Name
}

// parseEnvironment reads the text of an environment file; path is for errors.
func parseEnvironment(path, text string, dialects []dialect.Name) (Variables, error) {
	t := &environmentText{rest: strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n"), line: 1, dialects: dialects}
	var variables Variables
	for t.nextEntry() {
		line := t.line
		v, err := t.entry()
		if err == nil && len(variables) >= maxVariables {
			err = fmt.Errorf("more than %d variables", maxVariables)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		variables = append(variables, v)
	}
	return variables, nil
}

// take removes n bytes from the rest and returns them.
func (t *environmentText) take(n int) string {
	taken := t.rest[:n]
	t.rest = t.rest[n:]
	t.line += strings.Count(taken, "\n")
	return taken
}

// takeTo takes everything before the first of stops, or everything.
func (t *environmentText) takeTo(stops string) string {
	n := strings.IndexAny(t.rest, stops)
	if n < 0 {
		n = len(t.rest)
	}
	return t.take(n)
}

// nextEntry goes to the next line that is neither blank nor a comment; false: there is none.
func (t *environmentText) nextEntry() bool {
	for t.rest != "" {
		t.space("\n")
		if t.rest == "" || t.rest[0] != '#' && t.rest[0] != ';' {
			break
		}
		t.takeTo("\n")
	}
	return t.rest != ""
}

// space takes spaces, and what else counts as such.
func (t *environmentText) space(also string) {
	t.take(len(t.rest) - len(strings.TrimLeft(t.rest, " \t\r"+also)))
}

// entry reads NAME=VALUE.
func (t *environmentText) entry() (Variable, error) {
	name := strings.TrimSpace(t.takeTo("=\n"))
	if t.rest == "" || t.rest[0] != '=' {
		return Variable{}, errors.New("the line has no =: write NAME=VALUE") // not shown: it may be a part of a secret
	}
	if fields := strings.Fields(name); len(fields) == 2 && fields[0] == "export" {
		name = fields[1]
	}
	if err := checkVariable(name, t.dialects); err != nil {
		return Variable{}, err
	}
	t.take(1)
	t.space("")
	value, err := t.value()
	if err == nil && strings.Contains(value, "\x00") {
		err = errors.New("the value has a NUL character: remove it")
	}
	return Variable{Name: strings.Clone(name), Value: value}, err
}

// value reads what stands behind the =, to the end of its line.
func (t *environmentText) value() (string, error) {
	if t.rest == "" {
		return "", nil
	}
	var value string
	var err error
	switch t.rest[0] {
	case '\'':
		value, err = t.singleQuoted()
	case '"':
		value, err = t.doubleQuoted()
	default:
		return t.unquoted(), nil
	}
	if err != nil {
		return "", err
	}
	if strings.Trim(t.takeTo("\n"), " \t\r") != "" {
		return "", errors.New("there is something behind the closing quote: remove it, or put all of the value in quotes")
	}
	return value, nil
}

func (t *environmentText) singleQuoted() (string, error) {
	t.take(1)
	value := t.takeTo("'")
	if t.rest == "" {
		return "", errors.New("the quote ' is not closed")
	}
	t.take(1)
	return strings.Clone(value), nil
}

func (t *environmentText) doubleQuoted() (string, error) {
	t.take(1)
	var value strings.Builder
	for {
		value.WriteString(t.takeTo(`"\`))
		switch {
		case t.rest == "" || t.rest == `\`:
			return "", errors.New(`the quote " is not closed`)
		case t.rest[0] == '"':
			t.take(1)
			return value.String(), nil
		default:
			value.WriteString(escaped(t.take(2)))
		}
	}
}

// escaped is what a backslash and the character behind it stand for in double quotes.
func escaped(pair string) string {
	switch pair[1] {
	case '"', '\\', '`', '$':
		return pair[1:]
	case '\n':
		return ""
	}
	return pair
}

// unquoted reads a value without quotes. Spaces at its end do not belong to it, unless there is a backslash before.
func (t *environmentText) unquoted() string {
	var value strings.Builder
	keep := 0 // so much is kept whatever it is
	for {
		value.WriteString(t.takeTo("\n\\"))
		if t.rest == "" || t.rest[0] == '\n' || t.rest == `\` {
			break
		}
		if pair := t.take(2); pair[1] != '\n' {
			value.WriteByte(pair[1])
			keep = value.Len()
		}
	}
	if t.rest == `\` { // the last byte of the file joins nothing
		t.take(1)
	}
	all := value.String()
	return all[:keep] + strings.TrimRight(all[keep:], " \t\r")
}

// Package environment reads the variables of a program from files and from a directory with a file for each.
package environment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/reserved"
)

// maxVariables bounds how many variables the files of one program can have.
const maxVariables = 10_000

// Variable sets an environment variable or, with Unset, removes it.
type Variable struct {
	Name  string
	Value string
	Unset bool
}

// Variables are the variables of environment files, in order.
type Variables []Variable

// Apply changes environment, by the names of its variables; later variables win.
func (v Variables) Apply(environment map[string]string) {
	for _, one := range v {
		if one.Unset {
			delete(environment, one.Name)
		} else {
			environment[one.Name] = one.Value
		}
	}
}

// Optional begins the path of a file or folder that need not exist.
const Optional = "-"

// Read reads environment files, and folders with a file for each variable, in this order; of two entries for one
// variable the later wins. Errors name file and line; one for a missing path without Optional wraps fs.ErrNotExist. A
// variable by which supervisord speaks to its workers is an error.
//
// The grammar of a file is that of systemd's EnvironmentFile= (systemd.exec(5)), with export allowed and everything
// refused that systemd would skip:
//
//   - A line that is blank, or begins with # or ;, is skipped.
//   - Other lines are NAME=VALUE or export NAME=VALUE. Spaces around them and around the = are not part of them.
//   - A value without quotes ends with the line. In it a backslash stands for the next character as it is, and at the
//     end of the line it joins the next line. There are no comments after a value, and no $VARIABLE is replaced.
//   - A value in 'single quotes' is taken as it is, over several lines if need be.
//   - A value in "double quotes" likewise, but a backslash before " \ ` $ stands for that character, and one at the
//     end of the line joins the next line; before anything else it is itself.
//   - Only spaces may follow the closing quote.
//
// In a directory (daemontools' envdir) each file is the variable of its name, and its first line, without the line end,
// is the value, with each NUL standing for a line end. An empty file removes the variable. Hidden files are skipped.
func Read(paths []string) (Variables, error) {
	var all Variables
	for _, path := range paths {
		path, optional := strings.CutPrefix(path, Optional)
		variables, err := read(path)
		if optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, variables...)
	}
	return all, nil
}

// read reads a file, or a folder.
func read(path string) (Variables, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		variables, err := readDir(path)
		if err != nil {
			err = fmt.Errorf("environment_file: %w", err)
		}
		return variables, err
	}
	data, err := document.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("environment_file: %w", err)
	}
	return parse(path, string(data))
}

// readDir reads a directory with one file for each variable.
func readDir(dir string) (Variables, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxVariables + 1)
	if err != nil && len(names) == 0 && err != io.EOF {
		return nil, err
	}
	if len(names) > maxVariables {
		return nil, fmt.Errorf("%s: more than %d files", dir, maxVariables)
	}
	slices.Sort(names)
	var variables Variables
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue
		}
		path := filepath.Join(dir, name)
		if err := CheckName(name); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		data, err := document.ReadFile(path)
		if err != nil {
			return nil, err
		}
		line, _, _ := bytes.Cut(data, []byte("\n"))
		variables = append(variables, Variable{Name: name, Value: strings.ReplaceAll(string(line), "\x00", "\n"),
			Unset: len(data) == 0})
	}
	return variables, nil
}

// ValidName reports whether name can be the name of a variable.
func ValidName(name string) bool {
	return document.Bare(name) && !strings.Contains(name, "-") && (name[0] < '0' || name[0] > '9')
}

// CheckName returns why a file cannot set a variable of this name.
func CheckName(name string) error {
	if !ValidName(name) {
		return fmt.Errorf("%.40q is not a valid variable name: use letters, digits and _, not beginning with a digit", name)
	}
	if reserved.ForWorkers(name) {
		return fmt.Errorf("%s is set by supervisord itself: remove it", name)
	}
	return nil
}

// CheckFile returns why the text of an environment file cannot be read; nil: it can. name is for the error.
func CheckFile(name, text string) error {
	_, err := parse(name, text)
	return err
}

// parse reads the text of an environment file; path is for errors.
func parse(path, text string) (Variables, error) {
	t := &fileText{rest: strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n"), line: 1}
	var variables Variables
	for t.nextEntry() {
		line := t.line
		v, err := t.entry()
		if err == nil {
			err = CheckName(v.Name)
		}
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

// fileText is an environment file while it is read.
type fileText struct {
	rest string // still to be read
	line int    // of rest
}

const spaces = " \t\r"

// take removes n bytes from the rest and returns them.
func (t *fileText) take(n int) string {
	taken := t.rest[:n]
	t.rest = t.rest[n:]
	t.line += strings.Count(taken, "\n")
	return taken
}

// takeTo takes everything before the first of stops, or everything.
func (t *fileText) takeTo(stops string) string {
	n := strings.IndexAny(t.rest, stops)
	if n < 0 {
		n = len(t.rest)
	}
	return t.take(n)
}

// skip takes what is in chars.
func (t *fileText) skip(chars string) {
	t.take(len(t.rest) - len(strings.TrimLeft(t.rest, chars)))
}

// nextEntry goes to the next line that is neither blank nor a comment; false: there is none.
func (t *fileText) nextEntry() bool {
	for t.skip(spaces + "\n"); t.rest != "" && strings.ContainsAny(t.rest[:1], "#;"); t.skip(spaces + "\n") {
		t.takeTo("\n")
	}
	return t.rest != ""
}

// entry reads NAME=VALUE.
func (t *fileText) entry() (Variable, error) {
	name := strings.TrimSpace(t.takeTo("=\n"))
	if !strings.HasPrefix(t.rest, "=") {
		return Variable{}, errors.New("the line has no =: write NAME=VALUE") // not shown: it may be a part of a secret
	}
	if fields := strings.Fields(name); len(fields) == 2 && fields[0] == "export" {
		name = fields[1]
	}
	t.take(1)
	t.skip(spaces)
	value, err := t.value()
	if err == nil && strings.Contains(value, "\x00") {
		err = errors.New("the value has a NUL character: remove it")
	}
	return Variable{Name: strings.Clone(name), Value: value}, err
}

// value reads what follows the =, to the end of its line.
func (t *fileText) value() (string, error) {
	if t.rest == "" || !strings.ContainsAny(t.rest[:1], `'"`) {
		return t.unquoted(), nil
	}
	value, closed := t.quoted(t.take(1))
	if !closed {
		return "", errors.New("the quote is not closed: close it")
	}
	if strings.Trim(t.takeTo("\n"), spaces) != "" {
		return "", errors.New("there is something after the closing quote: remove it, or put all of the value in quotes")
	}
	return value, nil
}

// quoted reads a value after its opening quote; false: it is not closed.
func (t *fileText) quoted(quote string) (string, bool) {
	stops := quote
	if quote == `"` {
		stops += `\`
	}
	var value strings.Builder
	for {
		value.WriteString(t.takeTo(stops))
		switch {
		case strings.HasPrefix(t.rest, quote):
			t.take(1)
			return value.String(), true
		case len(t.rest) < 2:
			return "", false
		}
		switch pair := t.take(2); pair[1] {
		case '"', '\\', '`', '$':
			value.WriteString(pair[1:])
		case '\n':
		default:
			value.WriteString(pair)
		}
	}
}

// unquoted reads a value without quotes. Spaces at its end are not part of it, unless a backslash precedes them.
func (t *fileText) unquoted() string {
	var value strings.Builder
	keep := 0 // this much is kept whatever it is
	for {
		value.WriteString(t.takeTo("\n\\"))
		if len(t.rest) < 2 || t.rest[0] == '\n' {
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
	return all[:keep] + strings.TrimRight(all[keep:], spaces)
}

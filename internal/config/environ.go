package config

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/socket/dialect"
)

// maxVariables bounds how many variables the files of one program can have.
const maxVariables = 10_000

// Variable is one variable of an environment, or the wish that it be not there.
type Variable struct {
	Name  string
	Value string
	Unset bool
}

// Variables is what environment files say, in their order.
type Variables []Variable

// Apply changes environment, by the names of its variables, as v says: the later over the earlier.
func (v Variables) Apply(environment map[string]string) {
	for _, one := range v {
		if one.Unset {
			delete(environment, one.Name)
		} else {
			environment[one.Name] = one.Value
		}
	}
}

// ReadEnvironment reads environment files and then an environment directory ("": none), in this order; of two entries for
// one variable the later one counts. Errors name file and line; one for a missing file wraps fs.ErrNotExist. A variable by which
// supervisord speaks to the worker, in these dialects, is an error.
//
// The grammar of a file is that of systemd's EnvironmentFile= (systemd.exec(5)), with export allowed and everything
// refused that systemd would skip:
//
//   - A line that is blank, or begins with # or ;, is skipped.
//   - Other lines are NAME=VALUE or export NAME=VALUE. Spaces around them and around the = are not part of them.
//   - A value without quotes ends with the line. In it a backslash stands for the next character as it is, and at the
//     end of the line it joins the next line. There are no comments behind a value, and no $VARIABLE is replaced.
//   - A value in 'single quotes' is taken as it is, over several lines if need be.
//   - A value in "double quotes" likewise, but a backslash before " \ ` $ stands for that character, and one at the
//     end of the line joins the next line; before anything else it is itself.
//   - Behind the closing quote only spaces may follow.
//
// In a directory (daemontools' envdir) each file is the variable of its name, and its first line, without the line end,
// is the value, with each NUL standing for a line end. A file of no bytes removes the variable. Hidden files are skipped.
func ReadEnvironment(files []string, dir string, dialects []dialect.Name) (Variables, error) {
	var all Variables
	for _, path := range files {
		data, err := readFile(path)
		if err != nil {
			return nil, fmt.Errorf("environment_file: %w", err)
		}
		variables, err := parseEnvironment(path, string(data), dialects)
		if err != nil {
			return nil, err
		}
		all = append(all, variables...)
	}
	if dir != "" {
		variables, err := readEnvironmentDir(dir, dialects)
		if err != nil {
			return nil, fmt.Errorf("environment_dir: %w", err)
		}
		all = append(all, variables...)
	}
	return all, nil
}

// readEnvironmentDir reads a directory with one file for each variable.
func readEnvironmentDir(dir string, dialects []dialect.Name) (Variables, error) {
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
		if isHidden(name) {
			continue
		}
		v, err := readVariable(filepath.Join(dir, name), dialects)
		if err != nil {
			return nil, err
		}
		variables = append(variables, v)
	}
	return variables, nil
}

// readVariable reads one file of an environment directory.
func readVariable(path string, dialects []dialect.Name) (Variable, error) {
	v := Variable{Name: filepath.Base(path)}
	if err := checkVariable(v.Name, dialects); err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	data, err := readFile(path)
	if err != nil {
		return v, err
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	v.Unset = len(data) == 0
	v.Value = strings.ReplaceAll(string(line), "\x00", "\n")
	return v, nil
}

// goodVariable reports whether name can be the name of a variable.
func goodVariable(name string) bool {
	return bare(name) && !strings.Contains(name, "-") && (name[0] < '0' || name[0] > '9')
}

// checkVariable says why a file cannot set a variable of this name.
func checkVariable(name string, dialects []dialect.Name) error {
	if !goodVariable(name) {
		return fmt.Errorf("%.40q is no name of a variable: use letters, digits and _, not beginning with a digit", name)
	}
	if reserved.ForWorkers(name, dialects) {
		return fmt.Errorf("%s is set by supervisord itself: remove it", name)
	}
	return nil
}

// Package scaffold writes the configuration of a first program, by what is in its directory.
package scaffold

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/convert/draft"
)

// Found is a command that a directory seems to be made for.
type Found struct {
	Name    string   // of the program
	Command []string // relative to the directory
	By      string   // the file that shows it; "": the user named the command
	Build   string   // what makes the command; "": nothing
}

// finders look for one kind of project each. They return no command if it is not there.
var finders = []struct {
	file string
	find func(d directory) Found
}{
	{"manage.py", django}, {"Gemfile", ruby}, {"package.json", node}, {"pom.xml", maven}, {"Cargo.toml", rust}, {"go.mod", golang},
}

// converted are files of other supervisors, which `supervisord convert` reads.
var converted = []string{"Procfile", "ecosystem.config.js", "ecosystem.json", "compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml", "supervisord.conf"}

// Find looks for a program in a directory. Without one the error says what Find looks for, or what to do instead.
func Find(dir string) (Found, error) {
	d := directory{dir}
	for _, name := range converted {
		if d.has(name) {
			return Found{}, fmt.Errorf("%s says what runs here: convert it with: supervisord convert %s", name, filepath.Join(dir, name))
		}
	}
	for _, f := range finders {
		if !d.has(f.file) {
			continue
		}
		if found := f.find(d); len(found.Command) > 0 {
			found.By, found.Name = f.file, draft.ValidName(cmp.Or(found.Name, d.base()))
			return found, nil
		}
	}
	switch programs := d.executables(); len(programs) {
	case 0:
		return Found{}, fmt.Errorf("%s has no program that is recognized (manage.py, Gemfile, package.json, pom.xml, Cargo.toml, go.mod, or an executable file): "+
			"name the command: supervisord init -- ./server --flag", dir)
	case 1:
		return Found{Name: draft.ValidName(programs[0]), Command: []string{"./" + programs[0]}, By: programs[0]}, nil
	default:
		return Found{}, fmt.Errorf("%s has several executable files (%s): name the command: supervisord init -- ./%s", dir, strings.Join(programs, ", "), programs[0])
	}
}

// Named is the program of a command that the user has named.
func Named(dir string, argv []string) Found {
	return Found{Name: draft.ValidName(cmp.Or(strings.TrimSuffix(path.Base(argv[0]), path.Ext(argv[0])), filepath.Base(dir))), Command: argv}
}

type directory struct{ path string }

func (d directory) has(name string) bool {
	info, err := os.Stat(filepath.Join(d.path, name))
	return err == nil && info.Mode().IsRegular()
}

func (d directory) read(name string) string {
	text, _ := document.ReadFile(filepath.Join(d.path, name))
	return string(text)
}

func (d directory) base() string {
	whole, err := filepath.Abs(d.path)
	if err != nil {
		return ""
	}
	return filepath.Base(whole)
}

// first returns the first of these files that is there.
func (d directory) first(names ...string) string {
	if i := slices.IndexFunc(names, d.has); i >= 0 {
		return names[i]
	}
	return ""
}

// executables lists the executable files that are not hidden.
func (d directory) executables() (names []string) {
	entries, _ := os.ReadDir(d.path)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().Type()&^fs.ModeSymlink == 0 && !strings.HasPrefix(e.Name(), ".") {
			if info, err = os.Stat(filepath.Join(d.path, e.Name())); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
				names = append(names, e.Name())
			}
		}
	}
	return names
}

func django(d directory) Found {
	found, _ := filepath.Glob(filepath.Join(d.path, "*", "wsgi.py"))
	if len(found) == 0 {
		return Found{}
	}
	project := filepath.Base(filepath.Dir(found[0]))
	gunicorn := cmp.Or(d.first(".venv/bin/gunicorn", "venv/bin/gunicorn"), "gunicorn")
	return Found{Name: project, Command: []string{gunicorn, project + ".wsgi:application"}}
}

func ruby(d directory) Found {
	gems := d.read("Gemfile")
	for _, server := range []string{"puma", "unicorn", "pitchfork", "falcon"} {
		if strings.Contains(gems, `"`+server+`"`) || strings.Contains(gems, "'"+server+"'") {
			return Found{Command: []string{"bundle", "exec", server}}
		}
	}
	return Found{Command: []string{"bundle", "exec", "rackup"}}
}

func node(d directory) Found {
	var p struct {
		Name, Main string
		Scripts    map[string]string
	}
	if json.Unmarshal([]byte(d.read("package.json")), &p) != nil {
		return Found{}
	}
	_, name, scoped := strings.Cut(p.Name, "/")
	if !scoped {
		name = p.Name
	}
	words := strings.Fields(p.Scripts["start"])
	switch {
	case len(words) > 0 && strings.ContainsAny(p.Scripts["start"], "|&;<>()$`\\\"'*?[]#~%="):
		return Found{Name: name, Command: []string{"sh", "-c", "exec " + p.Scripts["start"]}}
	case len(words) > 0:
		if local := "node_modules/.bin/" + words[0]; d.has(local) {
			words[0] = local
		}
		return Found{Name: name, Command: words}
	}
	if file := d.first(p.Main, "server.js", "index.js", "app.js"); file != "" {
		return Found{Name: name, Command: []string{"node", file}}
	}
	return Found{}
}

func maven(d directory) Found {
	var p struct {
		Artifact string `xml:"artifactId"`
		Version  string `xml:"version"`
		Parent   struct {
			Version string `xml:"version"`
		} `xml:"parent"`
	}
	if xml.Unmarshal([]byte(d.read("pom.xml")), &p) != nil || p.Artifact == "" {
		return Found{}
	}
	jar := "target/" + p.Artifact + "-" + cmp.Or(p.Version, p.Parent.Version) + ".jar"
	return Found{Name: p.Artifact, Command: []string{"java", "-jar", jar}, Build: "mvn package"}
}

func rust(d directory) Found {
	name := regexp.MustCompile(`(?m)^name\s*=\s*"([^"]+)"`).FindStringSubmatch(d.read("Cargo.toml"))
	if name == nil {
		return Found{}
	}
	return Found{Name: name[1], Command: []string{"target/release/" + name[1]}, Build: "cargo build --release"}
}

func golang(d directory) Found {
	module := regexp.MustCompile(`(?m)^module\s+"?([^\s"]+)`).FindStringSubmatch(d.read("go.mod"))
	if module == nil {
		return Found{}
	}
	name := path.Base(module[1])
	if regexp.MustCompile(`^v[0-9]+$`).MatchString(name) {
		name = path.Base(path.Dir(module[1]))
	}
	commands, _ := filepath.Glob(filepath.Join(d.path, "cmd", "*", "main.go"))
	switch {
	case d.has("main.go"):
		return Found{Name: name, Command: []string{"./" + name}, Build: "go build -o " + name + " ."}
	case len(commands) > 0:
		name = filepath.Base(filepath.Dir(commands[0]))
		return Found{Name: name, Command: []string{"./bin/" + name}, Build: "go build -o bin/" + name + " ./cmd/" + name}
	}
	return Found{Name: name, Command: []string{"./" + name}, Build: "go build -o " + name}
}

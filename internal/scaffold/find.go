// Package scaffold writes the configuration of a first program, by what is in its directory.
package scaffold

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
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
	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/internal/servers"
)

// Found is a command that a directory seems to be made for.
type Found struct {
	Name    string   // of the program
	Command []string // relative to the directory
	By      string   // the file that shows it; "": the user named the command
	Build   string   // what makes the command; "": nothing
	Address string   // where such a program listens if nothing else says it; "": nobody knows

	dir directory
}

// finders look for one kind of project each. They return no command if it is not there.
var finders = []struct {
	file string
	find func(d directory) Found
}{
	{"manage.py", django}, {"Gemfile", ruby}, {"config.ru", rack}, {"package.json", node}, {"pom.xml", maven},
	{"build.gradle", gradle}, {"build.gradle.kts", gradle},
	{"Cargo.toml", rust}, {"go.mod", golang},
	{"main.py", python}, {"app.py", python}, {"wsgi.py", python}, {"asgi.py", python}, {"application.py", python},
	{"server.py", python}, {"Caddyfile", caddy},
}

// converted are files of other supervisors, which `supervisord convert` reads.
var converted = []string{"Procfile", "ecosystem.config.js", "ecosystem.json", "compose.yaml", "compose.yml",
	"docker-compose.yml", "docker-compose.yaml", "supervisord.conf"}

// Find looks for a program in a directory. Without one the error says what Find looks for, or what to do instead.
func Find(dir string) (Found, error) {
	d := directory{path: dir}
	if err := d.check(); err != nil {
		return Found{}, err
	}
	if name := d.first(converted...); name != "" {
		return Found{}, fmt.Errorf("%s says what runs here: convert it with: supervisord convert %s", name,
			filepath.Join(dir, name))
	}
	for _, f := range finders {
		if !d.has(f.file) {
			continue
		}
		d.by = f.file
		if found := f.find(d); len(found.Command) > 0 {
			found.dir, found.By, found.Name = d, f.file, draft.ValidName(cmp.Or(found.Name, d.base()))
			return found, nil
		}
	}
	if command := d.dockerfile(); len(command) > 0 {
		return Found{dir: d, Name: draft.ValidName(d.base()), Command: command, By: "Dockerfile"}, nil
	}
	return d.executable()
}

// executable is the only executable file.
func (d directory) executable() (Found, error) {
	switch programs := d.executables(); len(programs) {
	case 0:
		return Found{}, fmt.Errorf("%s has no program that is recognized (manage.py, a Flask or FastAPI application in "+
			"app.py or main.py, Gemfile, "+
			"config.ru, package.json, pom.xml, build.gradle, Cargo.toml, go.mod, Caddyfile, or an executable file): "+
			"name the command: supervisord init -- ./server --flag", d.path)
	case 1:
		return Found{dir: d, Name: draft.ValidName(programs[0]), Command: []string{"./" + programs[0]}, By: programs[0]}, nil
	default:
		return Found{}, fmt.Errorf("%s has several executable files (%s): name the command: supervisord init -- ./%s", d.path,
			strings.Join(programs, ", "), programs[0])
	}
}

// Named is the program of a command that the user has named. Its name is that of the program, or of the directory if
// the command is a server or an interpreter.
func Named(dir string, argv []string) Found {
	program := servers.ProgramOf(argv)
	if program != "" {
		program = strings.TrimSuffix(path.Base(program), path.Ext(program))
	}
	d := directory{path: dir}
	return Found{dir: d, Name: draft.ValidName(cmp.Or(program, d.base())), Command: argv}
}

// directory is what Find looks into; by is the file that a finder is for.
type directory struct{ path, by string }

// check returns an error if the directory is not one.
func (d directory) check() error {
	info, err := os.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no directory %s: name the one with the program, or the command: supervisord init -- "+
			"./server", d.path)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory: name the one with the program, or the command: supervisord init -- %s",
			d.path, d.path)
	}
	return nil
}

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
			if info, err = os.Stat(filepath.Join(d.path, e.Name())); err == nil && info.Mode().IsRegular() &&
				info.Mode().Perm()&0o111 != 0 {
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

// rack is a Rack application without a Gemfile.
func rack(directory) Found { return Found{Command: []string{"puma"}} }

// The application object in a Python module, and the function that makes one.
var (
	pythonApp     = pattern.Lazy(`(?m)^(\w+)(?:\s*:\s*[\w.]+)?\s*=\s*(?:\w+\.)?(Flask|Quart|FastAPI|Starlette|Litestar)\(`)
	pythonFactory = pattern.Lazy(`(?m)^def (create_app|make_app)\(\s*(?:\w+\s*(?::[^=,)]*)?=[^,)]*,?\s*)*\)`)
)

// python is an application of Flask, FastAPI and the like in one module, which a server of the virtual environment
// runs.
func python(d directory) Found {
	text, module := d.read(d.by), strings.TrimSuffix(d.by, ".py")
	server := func(name string) string { return cmp.Or(d.first(".venv/bin/"+name, "venv/bin/"+name), name) }
	switch m := pythonApp().FindStringSubmatch(text); {
	case m != nil && m[2] == "Flask":
		return Found{Command: []string{server("gunicorn"), module + ":" + m[1]}}
	case m != nil:
		return Found{Command: []string{server("uvicorn"), module + ":" + m[1]}}
	}
	if m := pythonFactory().FindStringSubmatch(text); m != nil && strings.Contains(text, "Flask(") {
		return Found{Command: []string{server("gunicorn"), module + ":" + m[1] + "()"}}
	}
	return Found{}
}

// nodeAddress is where the programs of a framework listen.
func nodeAddress(dependencies map[string]any) string {
	for _, name := range []string{"express", "next", "nuxt", "koa", "fastify", "hapi", "@nestjs/core"} {
		if _, has := dependencies[name]; has {
			return "127.0.0.1:3000"
		}
	}
	return ""
}

func node(d directory) Found {
	var p struct {
		Name, Main   string
		Scripts      map[string]string
		Dependencies map[string]any
	}
	if json.Unmarshal([]byte(d.read("package.json")), &p) != nil {
		return Found{}
	}
	_, name, scoped := strings.Cut(p.Name, "/")
	if !scoped {
		name = p.Name
	}
	words := strings.Fields(p.Scripts["start"])
	file := d.first(p.Main, "server.js", "index.js", "app.js")
	found := Found{Name: name, Address: nodeAddress(p.Dependencies)}
	switch {
	case len(words) > 0 && strings.ContainsAny(p.Scripts["start"], "|&;<>()$`\\\"'*?[]#~%="):
		found.Command = []string{"sh", "-c", "exec " + p.Scripts["start"]}
	case len(words) > 0:
		if local := "node_modules/.bin/" + words[0]; d.has(local) {
			words[0] = local
		}
		found.Command = words
	case file != "":
		found.Command = []string{"node", file}
	}
	if len(found.Command) > 0 {
		return found
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
	address := ""
	if strings.Contains(d.read("pom.xml"), "spring-boot") {
		address = "127.0.0.1:8080"
	}
	return Found{Name: p.Artifact, Command: []string{"java", "-jar", jar}, Build: "mvn package", Address: address}
}

// What a build of Gradle says, in Groovy and in Kotlin.
var (
	gradleProject = pattern.Lazy(`(?m)^\s*rootProject\.name\s*=\s*["']([^"'$]+)["']`)
	gradleVersion = pattern.Lazy(`(?m)^version\s*=?\s*["']([^"'$]+)["']`)
	gradleArchive = pattern.Lazy(`archiveFileName\s*(?:=|\.set\()\s*["']([^"'$]+)["']`)
	gradleSpring  = pattern.Lazy(`org\.springframework\.boot|plugins\.spring\.?boot`)
	gradleRuns    = pattern.Lazy(`(?m)^\s*(?:application\b|id\s*\(?\s*["']application["']|apply plugin: ` +
		`["']application["'])`)
)

// gradle is an application of Spring Boot, which Gradle makes a jar, or one of its plugin application, which it
// installs.
func gradle(d directory) Found {
	text := d.read(d.by)
	first := func(found []string, otherwise string) string {
		if found == nil {
			return otherwise
		}
		return found[1]
	}
	name := first(gradleProject().FindStringSubmatch(d.read("settings.gradle")+"\n"+d.read("settings.gradle.kts")),
		d.base())
	tool := "gradle"
	if d.has("gradlew") {
		tool = "./gradlew"
	}
	switch {
	case gradleSpring().MatchString(text):
		jar := name + ".jar"
		if version := gradleVersion().FindStringSubmatch(text); version != nil {
			jar = name + "-" + version[1] + ".jar"
		}
		jar = first(gradleArchive().FindStringSubmatch(text), jar)
		return Found{Name: name, Command: []string{"java", "-jar", "build/libs/" + jar}, Build: tool + " bootJar",
			Address: "127.0.0.1:8080"}
	case gradleRuns().MatchString(text):
		return Found{Name: name, Command: []string{"build/install/" + name + "/bin/" + name}, Build: tool + " installDist"}
	}
	return Found{}
}

func caddy(directory) Found { return Found{Command: []string{"caddy", "run"}} }

// code returns where the code in files listens; "": it does not say.
func (d directory) code(pattern string) string {
	files, _ := filepath.Glob(filepath.Join(d.path, pattern))
	for _, file := range files {
		text, _ := document.ReadFile(file)
		if address := servers.InCode(file, string(text)); address != "" {
			return address
		}
	}
	return ""
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
	if !d.has("main.go") && len(commands) > 0 {
		name = filepath.Base(filepath.Dir(commands[0]))
		return Found{Name: name, Command: []string{"./bin/" + name}, Build: "go build -o bin/" + name + " ./cmd/" + name,
			Address: d.code("cmd/" + name + "/*.go")}
	}
	return Found{Name: name, Command: []string{"./" + name}, Build: "go build -o " + name + " .", Address: d.code("*.go")}
}

// world is what the port of a program may depend on: the files of its directory, and the variables that .env and the
// Dockerfile set, or the shell that init is typed in.
func (d directory) world() servers.Surroundings {
	within := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(d.path, path)
	}
	return servers.Surroundings{
		Getenv: d.getenv,
		Read: func(path string) (string, error) {
			text, err := document.ReadFile(within(path))
			return string(text), err
		},
		Glob: func(pattern string) ([]string, error) { return filepath.Glob(within(pattern)) },
	}
}

// getenv returns a variable of the project.
func (d directory) getenv(name string) string {
	for _, file := range []string{".env.local", ".env.production", ".env"} {
		for line := range strings.Lines(d.read(file)) {
			if value, ok := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "export "), name+"="); ok {
				return strings.Trim(strings.TrimSpace(value), `"'`)
			}
		}
	}
	for _, m := range dockerEnv().FindAllStringSubmatch(d.read("Dockerfile"), -1) {
		if m[1] == name {
			return strings.Trim(m[2], `"'`)
		}
	}
	if name == "PORT" {
		return os.Getenv(name)
	}
	return ""
}

var (
	dockerEnv    = pattern.Lazy(`(?mi)^\s*ENV\s+(\w+)[= \t]+(\S+)`)
	dockerExpose = pattern.Lazy(`(?mi)^\s*EXPOSE\s+(\d+)(?:/tcp)?\b`)
	dockerRun    = pattern.Lazy(`(?mi)^\s*(ENTRYPOINT|CMD)\s+(.+)$`)
	procfileWeb  = pattern.Lazy(`(?m)^web:\s*(.+)$`)
)

// dockerfile returns the command of an image that is made of the directory: its entrypoint and its command.
func (d directory) dockerfile() (command []string) {
	said := map[string][]string{}
	for _, m := range dockerRun().FindAllStringSubmatch(d.read("Dockerfile"), -1) {
		var words []string
		if json.Unmarshal([]byte(m[2]), &words) != nil {
			words = []string{"sh", "-c", "exec " + strings.TrimSpace(m[2])}
		}
		said[strings.ToUpper(m[1])] = words
	}
	return append(said["ENTRYPOINT"], said["CMD"]...)
}

// elsewhere returns where a program of the directory listens by files that speak of it; "": none does.
func (d directory) elsewhere() string {
	var found []servers.Listen
	if m := procfileWeb().FindStringSubmatch(d.read("Procfile")); m != nil {
		found = append(found, servers.Read([]string{"sh", "-c", m[1]}, d.world()).Listen...)
	}
	if command := d.dockerfile(); len(command) > 0 {
		found = append(found, servers.Read(command, d.world()).Listen...)
	}
	if len(found) > 0 {
		return found[0].Address
	}
	if m := dockerExpose().FindStringSubmatch(d.read("Dockerfile")); m != nil {
		return "0.0.0.0:" + m[1]
	}
	return ""
}

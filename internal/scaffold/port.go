package scaffold

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/pattern"
	"example.org/supervisord/internal/servers"
)

// world is what the port of a program may depend on: the files of its directory, and the variables that .env and the
// Dockerfile set, or the shell that init is typed in.
func (d directory) world() servers.World {
	within := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(d.path, path)
	}
	return servers.World{
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

package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/socket"
)

// maxRuntimeDir leaves room for a socket's name in the 107 bytes of a unix socket's path (unix(7)).
const maxRuntimeDir, maxSocketPath = 70, 107

// supervisorFields are the keys of [supervisor].
var supervisorFields = document.Fields[Settings]{
	"pid_file":  func(s *Settings, v document.Value) { v.Path(&s.PIDFile) },
	"log_level": func(s *Settings, v document.Value) { document.Choice(v, &s.LogLevel, "debug", "info", "warn", "error") },
	"log_format": func(s *Settings, v document.Value) {
		document.Choice(v, &s.LogFormat, "auto", "console", "json")
	},
	"watch":   func(s *Settings, v document.Value) { v.Flag(&s.Watch) },
	"include": func(s *Settings, v document.Value) { v.Paths(&s.Include) },
	"runtime_dir": func(s *Settings, v document.Value) {
		readShortPath(v, &s.RuntimeDir, maxRuntimeDir, "the sockets in it")
	},
	"stop_delay":      func(s *Settings, v document.Value) { v.Duration(&s.StopDelay, 0) },
	"control":         func(s *Settings, v document.Value) { readControl(v, &s.Control) },
	"control_group":   func(s *Settings, v document.Value) { readGroup(v, &s.ControlGroup) },
	"control_read":    func(s *Settings, v document.Value) { document.Choice(v, &s.ControlRead, "none", "any") },
	"http":            func(s *Settings, v document.Value) { readHTTP(v, &s.HTTP) },
	"http_token_file": func(s *Settings, v document.Value) { v.Path(&s.HTTPTokenFile) },
	"http_hosts":      func(s *Settings, v document.Value) { readHosts(v, &s.HTTPHosts) },
}

// inRuntimeDir stands for the usual path of the control socket until runtime_dir is known.
const inRuntimeDir = "\x00"

func defaultSupervisor() Settings {
	return Settings{LogLevel: "info", LogFormat: "auto", RuntimeDir: defaultRuntimeDir(), Control: inRuntimeDir,
		ControlRead: "none"}
}

// readSupervisor reads [supervisor], and fills in the defaults that depend on other keys.
func readSupervisor(v document.Value, s *Settings) {
	if v.Raw != nil && document.Decode(v, s, supervisorFields) {
		for _, key := range []string{"http_token_file", "http_hosts"} {
			v.Useless(key, v.Lacks("http"), "without http", `remove it, or write http = "127.0.0.1:9001"`)
		}
	}
	if s.Control == inRuntimeDir {
		s.Control = filepath.Join(s.RuntimeDir, controlName)
	}
}

// ControlMode returns the permissions of the control socket: who may connect. A user who may only read must be able to
// connect, too.
func (s *Settings) ControlMode() fs.FileMode {
	if s.ControlRead == "any" {
		return 0o666
	}
	return 0o660
}

// controlAddress is the address of the control socket; zero: there is none.
func (s *Settings) controlAddress() socket.Address {
	if s.Control == "" {
		return socket.Address{}
	}
	return socket.UnixAddress(s.Control)
}

// controlName is the control socket's name in runtime_dir.
const controlName = "control.sock"

// OwnControl returns the path of the control socket where another supervisord has the usual path in the same
// runtime_dir: a hash of the configuration file's path is in its name, so that a client who knows the file finds the
// socket. It returns "" if the configuration sets a path.
func (s *Settings) OwnControl(file string) string {
	if s.Control != filepath.Join(s.RuntimeDir, controlName) {
		return ""
	}
	return s.own(file, "control.%x.sock")
}

// InstanceFile returns the path of the file that a running supervisord keeps locked for this configuration file:
// pid_file, or a file in runtime_dir with a hash of the configuration file's path in its name. It returns "" for a
// configuration without a file.
func (s *Settings) InstanceFile(file string) string {
	if s.PIDFile != "" || file == "" {
		return s.PIDFile
	}
	return s.own(file, "supervisord.%x.pid")
}

// own returns a path in runtime_dir for one configuration file; format has a place for the hash of the file's path.
func (s *Settings) own(file, format string) string {
	sum := sha256.Sum256([]byte(document.Absolute("/", file)))
	return filepath.Join(s.RuntimeDir, fmt.Sprintf(format, sum[:6]))
}

// ControlSockets returns the paths where the control socket of this configuration file may be, the likeliest first;
// none: it has no control socket. It ignores problems in the file: asking a running supervisord must not depend on a
// configuration that somebody is editing.
func ControlSockets(path string) []string {
	l := newLoader()
	s := &l.config.Supervisor
	var table document.Value
	file, err := filepath.Abs(path)
	if err == nil {
		if root, ok := l.open(file); ok {
			table = root.Child("supervisor")
		}
	}
	readSupervisor(table, s)
	var paths []string
	for _, p := range []string{s.OwnControl(file), s.Control} {
		if p != "" {
			paths = append(paths, p)
		}
	}
	return paths
}

// readControl reads the path of the control socket. "" and "off" mean that there is none.
func readControl(v document.Value, into *string) {
	if v.Raw == "" || v.Raw == "off" {
		*into = ""
		return
	}
	readShortPath(v, into, maxSocketPath, "a socket's address")
}

// readShortPath reads a path of at most so many bytes.
func readShortPath(v document.Value, into *string, most int, use string) {
	var path string
	switch {
	case !v.Path(&path):
	case len(path) > most:
		v.Problem(fmt.Sprintf("has %d bytes, too many for %s", len(path), use), "write a path of at most %d", most)
	default:
		*into = path
	}
}

// defaultRuntimeDir returns the folder that systemd made for the service (RuntimeDirectory=), else the usual folder of
// this user.
func defaultRuntimeDir() string {
	first, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	if filepath.IsAbs(first) {
		return filepath.Clean(first)
	}
	if own := os.Getenv("XDG_RUNTIME_DIR"); os.Geteuid() != 0 && filepath.IsAbs(own) {
		return filepath.Join(own, "supervisord")
	}
	own := fmt.Sprintf("supervisord-%d", os.Geteuid())
	usual := document.Absolute("/", filepath.Join(os.TempDir(), own))
	if os.Geteuid() == 0 {
		usual = "/run/supervisord"
	}
	if mayHave(usual) {
		return usual
	}
	// A container whose root cannot be written to. The containers of a pod share /dev/shm, but not their mount namespaces.
	space, _ := os.Readlink("/proc/self/ns/mnt") // mnt:[4026531841]
	if inMemory := filepath.Join("/dev/shm", own+"-"+strings.Trim(space, "mnt:[]")); mayHave(inMemory) {
		return inMemory
	}
	return usual
}

// mayHave reports whether a folder exists or can be created.
func mayHave(path string) bool {
	err := unix.Access(path, unix.F_OK)
	for path != "/" && errors.Is(err, unix.ENOENT) {
		path = filepath.Dir(path)
		err = unix.Access(path, unix.W_OK|unix.X_OK)
	}
	return err == nil
}

// readHTTP reads where the metrics and the page are served: "host:port" or "unix:/path". "" and "off" mean nowhere.
func readHTTP(v document.Value, into *socket.Address) {
	var a socket.Address
	switch {
	case v.Raw == "" || v.Raw == "off":
	case !readAddress(v, &a):
	case a.IsUDP(), a.IsUnix() && !a.OnDisk():
		v.Problem(fmt.Sprintf("%q cannot be listened on", a),
			`write such as "127.0.0.1:9001" or "unix:/run/supervisord/http.sock"`)
	default:
		if !a.IsLoopback() {
			v.Warn("can be reached from other machines",
				`everybody there can read the state of all programs: write "127.0.0.1:%d", or keep others out`, a.Port)
		}
		*into = a
	}
}

// readHosts reads names of hosts, without ports.
func readHosts(v document.Value, into *[]string) {
	var names []string
	if !v.Texts(&names) {
		return
	}
	for i, name := range names {
		if strings.ContainsAny(name, ":/*@ ") || strings.ContainsFunc(name, notPrintable) {
			v.Problem(fmt.Sprintf("%q is not the name of a host", name),
				`write such as "supervisord.example.net": no port, no scheme, no wildcard`)
			return
		}
		names[i] = strings.ToLower(strings.TrimSuffix(name, "."))
	}
	*into = names
}

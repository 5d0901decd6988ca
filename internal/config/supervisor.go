package config

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"example.org/supervisord/socket"
)

// maxRuntimeDir leaves room for a socket's name in the 107 bytes of a unix socket's path (unix(7)).
const maxRuntimeDir = 70

// supervisorFields are the keys of [supervisor].
var supervisorFields = fields[Supervisor]{
	"pid_file":   func(s *Supervisor, v value) { v.file(&s.PIDFile) },
	"log_level":  func(s *Supervisor, v value) { choice(v, &s.LogLevel, "debug", "info", "warn", "error") },
	"log_format": func(s *Supervisor, v value) { choice(v, &s.LogFormat, "auto", "console", "json", "start_server") },
	"watch":      func(s *Supervisor, v value) { v.flag(&s.Watch) },
	"include":    func(s *Supervisor, v value) { v.files(&s.Include) },
	"runtime_dir": func(s *Supervisor, v value) {
		var dir string
		if !v.file(&dir) {
			return
		}
		if len(dir) > maxRuntimeDir {
			v.problem(fmt.Sprintf("has %d bytes, too many for the sockets in it", len(dir)), "write a path of at most %d", maxRuntimeDir)
			return
		}
		s.RuntimeDir = dir
	},
	"control":       func(s *Supervisor, v value) { v.control(&s.Control) },
	"control_mode":  func(s *Supervisor, v value) { v.mode(&s.ControlMode) },
	"control_group": func(s *Supervisor, v value) { v.group(&s.ControlGroup) },
	"control_read":  func(s *Supervisor, v value) { choice(v, &s.ControlRead, "none", "any") },

	"http":            func(s *Supervisor, v value) { v.http(&s.HTTP) },
	"http_token_file": func(s *Supervisor, v value) { v.file(&s.HTTPTokenFile) },
	"http_hosts":      func(s *Supervisor, v value) { v.hosts(&s.HTTPHosts) },
}

// inRuntimeDir stands for the control socket's place until it is known where that is.
const inRuntimeDir = "\x00"

func defaultSupervisor() Supervisor {
	return Supervisor{LogLevel: "info", LogFormat: "auto", RuntimeDir: defaultRuntimeDir(), Control: inRuntimeDir, ControlRead: "none"}
}

// complete fills in the defaults that depend on other keys.
func (s *Supervisor) complete() {
	if s.Control == inRuntimeDir {
		s.Control = filepath.Join(s.RuntimeDir, controlName)
	}
	if s.ControlMode != 0 {
		return
	}
	s.ControlMode = 0o660
	if s.ControlRead == "any" {
		s.ControlMode = 0o666 // whoever shall read must be able to connect
	}
}

// controlAddress is the address of the control socket; zero: there is none.
func (s *Supervisor) controlAddress() socket.Address {
	if s.Control == "" {
		return socket.Address{}
	}
	return socket.UnixAddress(s.Control)
}

// controlName is the control socket's name in runtime_dir.
const controlName = "control.sock"

// OwnControl returns where the control socket is if another supervisord has the usual place in the same runtime_dir: it has the
// configuration file in its name, so that whoever knows that finds it. It is "" where the configuration names a place.
func (s *Supervisor) OwnControl(file string) string {
	if s.Control != filepath.Join(s.RuntimeDir, controlName) {
		return ""
	}
	sum := sha256.Sum256([]byte(absolute("/", file)))
	return filepath.Join(s.RuntimeDir, fmt.Sprintf("control.%x.sock", sum[:6]))
}

// ControlSockets returns where the control socket of the configuration in this file may be, the likeliest first; none: there is
// none. A file that is wrong says what it can: who wants to ask a supervisord that runs must not depend on a configuration that is
// being mended.
func ControlSockets(path string) []string {
	s := defaultSupervisor()
	file, err := filepath.Abs(path)
	if err == nil {
		l := &loader{config: &Config{Supervisor: s}, defined: map[string]Program{}, bound: addresses{}}
		if root, ok := l.open(file); ok {
			decode(root, l.config, fields[Config]{
				"supervisor": func(c *Config, v value) { decode(v, &c.Supervisor, supervisorFields) },
				"program":    func(*Config, value) {},
			})
		}
		s = l.config.Supervisor
	}
	s.complete()
	var places []string
	for _, place := range []string{s.OwnControl(file), s.Control} {
		if place != "" {
			places = append(places, place)
		}
	}
	return places
}

// maxSocketPath is what a unix socket's address holds (unix(7)).
const maxSocketPath = 107

// control reads the path of the control socket. "" and "off" mean that there is none.
func (v value) control(into *string) {
	if v.raw == "" || v.raw == "off" {
		*into = ""
		return
	}
	var path string
	if !v.file(&path) {
		return
	}
	if len(path) > maxSocketPath {
		v.problem(fmt.Sprintf("has %d bytes, too many for a socket's address", len(path)), "write a path of at most %d", maxSocketPath)
		return
	}
	*into = path
}

// defaultRuntimeDir is the folder that systemd made for the service (RuntimeDirectory=), or else the usual one of this user.
func defaultRuntimeDir() string {
	first, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	if filepath.IsAbs(first) {
		return filepath.Clean(first)
	}
	if os.Geteuid() == 0 {
		return "/run/supervisord"
	}
	if own := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(own) {
		return filepath.Join(own, "supervisord")
	}
	return absolute("/", filepath.Join(os.TempDir(), fmt.Sprintf("supervisord-%d", os.Geteuid())))
}

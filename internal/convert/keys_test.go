package convert

import (
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/starter"
)

// The keys and options below come from the documentation of the converted programs. Each must have a rule and change
// the result, as a key or as a comment.

var supervisorDocumented = map[string]string{
	"command": "other", "process_name": "%(program_name)s_1", "numprocs": "1", "numprocs_start": "0", "priority": "1",
	"autostart": "true", "startsecs": "7",
	"startretries": "3", "autorestart": "true", "exitcodes": "0", "stopsignal": "INT", "stopwaitsecs": "20",
	"stopasgroup": "false",
	"killasgroup": "true", "user": "nobody", "redirect_stderr": "true", "stdout_logfile": "/a",
	"stdout_logfile_maxbytes": "1MB",
	"stdout_logfile_backups":  "3", "stdout_capture_maxbytes": "0", "stdout_events_enabled": "false",
	"stdout_syslog":  "false",
	"stderr_logfile": "/b", "stderr_logfile_maxbytes": "2MB", "stderr_logfile_backups": "4",
	"stderr_capture_maxbytes": "1", "stderr_events_enabled": "true",
	"stderr_syslog": "true", "environment": "A=1", "directory": "/x", "umask": "022", "serverurl": "AUTO",
}

func TestEveryKeyOfASupervisorProgramIsConvertedOrCommented(t *testing.T) {
	const program = "[program:x]\ncommand=y\n"
	for key, value := range supervisorDocumented {
		base := program
		if strings.HasPrefix(key, "stdout_logfile_") || strings.HasPrefix(key, "stderr_logfile_") {
			base += key[:len("stdout_logfile")] + "=/log\n"
		}
		if key == "redirect_stderr" {
			base += "stdout_logfile=/log\n"
		}
		shows(t, source.Supervisor, base, key+"="+value+"\n", key == "numprocs_start" || key == "command")
	}
	for key, value := range map[string]string{"socket_owner": "daemon", "socket_mode": "0777", "socket_backlog": "3"} {
		shows(t, source.Supervisor, "[fcgi-program:x]\ncommand=y\nsocket=unix:///s\n", key+"="+value+"\n", false)
	}
}

func TestEveryKeyOfSupervisorItselfIsConvertedOrCommented(t *testing.T) {
	for _, line := range []string{
		"logfile=/x", "logfile_maxbytes=1MB", "logfile_backups=1", "loglevel=debug", "pidfile=/p", "umask=022",
		"nodaemon=true", "minfds=1", "minprocs=1",
		"nocleanup=true", "childlogdir=/c", "user=nobody", "directory=/d", "strip_ansi=false", "environment=A=1",
		"identifier=x", "silent=true",
	} {
		shows(t, source.Supervisor, "[program:x]\ncommand=y\n[supervisord]\n", line+"\n", false)
	}
	for section, keys := range map[string][]string{
		"unix_http_server": {"file", "chmod", "chown", "username", "password"}, "inet_http_server": {"port", "username",
			"password"},
		"supervisorctl": {"serverurl", "username", "password", "prompt", "history_file"}, "group:g": {"programs", "priority"},
		"eventlistener:e": {"buffer_size", "events", "result_handler",
			"command"}, "rpcinterface:r": {"supervisor.rpcinterface_factory"}, "nonsense": {"x"},
	} {
		for _, key := range keys {
			shows(t, source.Supervisor, "[program:x]\ncommand=y\n["+section+"]\n", key+"=1\n", false)
		}
	}
}

// shows fails if an added line changes nothing. It is added last, so that the positions in comments stay the same.
func shows(t *testing.T, kind source.SourceKind, base, line string, mayBeDefault bool) {
	t.Helper()
	without, err := Convert(source.Input{Kind: kind, Name: "s", Text: base}, elsewhere("testdata"))
	if err != nil {
		t.Fatalf("%q: %v", base, err)
	}
	with, err := Convert(source.Input{Kind: kind, Name: "s", Text: base + line}, elsewhere("testdata"))
	if err != nil {
		t.Errorf("%q: %v", line, err)
	}
	if with.Text == without.Text && !mayBeDefault {
		t.Errorf("%q makes no difference:\n%s", line, with.Text)
	}
	for _, unknown := range []string{"ignores it too", "does not know it either", "only passes it to plugins"} {
		if strings.Contains(with.Text, unknown) && !strings.Contains(base+line, "nonsense") &&
			!strings.HasPrefix(line, "anything") {
			t.Errorf("%q is taken for unknown:\n%s", line, with.Text)
		}
	}
	if err := check(t, with); err != nil {
		t.Errorf("%q: %v", line, err)
	}
}

func TestEveryOptionIsConvertedOrCommented(t *testing.T) {
	values := map[string]string{
		"port": "2", "path": "/p", "interval": "3", "log-file": "l", "pid-file": "p", "dir": "d", "signal-on-hup": "INT",
		"signal-on-term": "INT", "backlog": "3",
		"envdir": "e", "auto-restart-interval": "7", "kill-old-delay": "3", "status-file": "s", "ready": "notify",
		"stop-timeout": "5m", "timeout": "1m", "handover": "steer", "set": "reload.soak=\"1s\"",
		"bind": "a:2", "command-name": "n", "socket-path": "s", "pidfile": "p", "lockfile": "l", "ack-mode": "manual",
		"number": "3", "preload": "p", "seconds": "3",
		"drop-env-var": "X", "reexec-as": "x", "nice": ":3", "with-state-fd": "3", "signal-timeout": "3", "max-unacked": "3",
		"max-upgrade-additional": "3", "working-dir": "w",
	}
	alone := []string{"help", "version", "restart", "stop", "upgrade-check"} // these start nothing: an error
	for kind, options := range map[source.SourceKind][]getopt.Flag{source.StartServer: starter.Flags()} {
		base := []string{"start_server", "--port=1", "--enable-auto-restart"}
		plain := must.Get(Convert(source.Input{Args: append(slices.Clone(base), "--", "x")}, elsewhere("testdata")))(t)
		for _, option := range options {
			args := append(slices.Clone(base), "--"+option.Name)
			if option.Kind != getopt.Switch {
				args = append(args, values[option.Name])
			}
			r, err := Convert(source.Input{Args: append(args, "--", "x")}, elsewhere("testdata"))
			switch {
			case slices.Contains(alone, option.Name):
				if err == nil || !strings.Contains(err.Error(), "starts nothing") {
					t.Errorf("%s --%s: %v", kind, option.Name, err)
				}
			case err != nil || check(t, r) != nil:
				t.Errorf("%s --%s: %v %v", kind, option.Name, err, check(t, r))
			case r.Text == plain.Text && option.Name != "enable-auto-restart":
				t.Errorf("%s --%s makes no difference", kind, option.Name)
			}
		}
	}
}

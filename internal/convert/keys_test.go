package convert

import (
	"os"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/getopt"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/starter"
)

// testdata/documented.txt says what it has.
func TestNoDocumentedKeyIsDropped(t *testing.T) {
	var kind, base string
	for line := range strings.Lines(string(must.Get(os.ReadFile("testdata/documented.txt"))(t))) {
		header, is := strings.CutPrefix(line, "> ")
		switch {
		case line[0] == '#' || line[0] == '\n':
		case is:
			kind, base, _ = strings.Cut(strings.ReplaceAll(strings.TrimSuffix(header, "\n"), `\n`, "\n"), " ")
		default:
			key, mayBeDefault := strings.CutPrefix(line, "=")
			shows(t, source.SourceKind(kind), base, key, mayBeDefault)
		}
	}
}

// shows fails if an added line changes nothing. It is added last, so that the positions in comments stay the same.
func shows(t *testing.T, kind source.SourceKind, base, line string, mayBeDefault bool) {
	t.Helper()
	without := must.Get(Convert(source.Input{Kind: kind, Name: "s", Text: base}, elsewhere("testdata")))(t)
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

// The options of start_server are those that it has. Each must have a rule and change the result.
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

// TestEveryKindSaysWhatToDoNext checks that the steps are there, and name the command that stops the old supervisor.
func TestEveryKindSaysWhatToDoNext(t *testing.T) {
	for name, stops := range map[string]string{
		"systemd/node": "systemctl disable --now node", "pm2/json": "pm2 stop json",
		"compose/shop": "docker compose stop web api", "supervisor/laravel": "disable --now supervisor",
		"procfile/usual": "stop foreman", "start_server/short": "stop start_server",
	} {
		s := goldenFiles(t)["testdata/"+name+".in"]
		s.Name = strings.TrimSuffix(s.Name, ".in")
		r, err := Convert(s, elsewhere("testdata"))
		if all := strings.Join(r.Next, "\n"); err != nil || !strings.Contains(all, stops) ||
			!strings.Contains(all, "supervisord check -c FILE") || !strings.Contains(all, "prove") {
			t.Errorf("%s: %v\n%s", name, err, all)
		}
	}
}

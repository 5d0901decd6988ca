package starter

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// normalized returns a command line in the form that every parser reads alike: --name=value, "--", and the command.
func normalized(words []string) ([]string, error) {
	line, err := Parse(words)
	if err != nil {
		return nil, err
	}
	var args []string
	for _, g := range line.Given {
		args = append(args, g.String())
	}
	if len(line.Command) > 0 {
		args = append(append(args, "--"), line.Command...)
	}
	return args, nil
}

func TestArgsFollowTheReference(t *testing.T) {
	for line, want := range map[string]string{
		"--port=8080 ./web":                    "--port=8080 -- ./web",
		"--port 8080 ./web -v":                 "--port=8080 -- ./web -v",
		"-port 8080 -- ./web --port=1":         "--port=8080 -- ./web --port=1",
		"--PORT 1 --Int 3 --":                  "--port=1 --interval=3",
		"--res --sta s --pid p":                "--restart --status-file=s --pid-file=p",
		"--re":                                 "--restart",
		"--ready notify --t 5s x":              "--ready=notify --timeout=5s -- x",
		"--port 1 --port u2=0 --path /x x":     "--port=1 --port=u2=0 --path=/x -- x",
		"--path --dir x":                       "--path=--dir -- x",
		"--interval -1 x":                      "--interval=-1 -- x",
		"./web -s Starlet --port 1":            "-- ./web -s Starlet --port 1",
		"./web --ready":                        "-- ./web --ready",
		"env -- ./web --port 1":                "-- env ./web --port 1",
		"-- ./web -- --port 1":                 "-- ./web -- --port 1",
		"- --port=1":                           "",
		"--enable-auto-restart --daemon x":     "--enable-auto-restart --daemonize -- x",
		"--kill 3 --au 4 --back 5 --env e x":   "--kill-old-delay=3 --auto-restart-interval=4 --backlog=5 --envdir=e -- x",
		"--signal-on-h=USR1 --signal-on-t=X x": "--signal-on-hup=USR1 --signal-on-term=X -- x",
	} {
		got, err := normalized(strings.Fields(line))
		if want == "" {
			if !errors.Is(err, ErrUsage) {
				t.Errorf("%s is read as %q, want an error", line, got)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s is read as\n%s, %v, want\n%s", line, strings.Join(got, " "), err, want)
		}
	}
}

func TestArgsRejectsMistakesWithTheReason(t *testing.T) {
	for line, want := range map[string]string{
		"--nope":                 "unknown option: nope",
		"--p 1":                  "option p is ambiguous (port, path, pid-file)",
		"--sig TERM":             "option sig is ambiguous (signal-on-hup, signal-on-term)",
		"--port":                 "option port requires an argument",
		"--port= x":              "option port requires an argument",
		"--interval=x":           `value "x" invalid for option interval (number expected)`,
		"--interval 99999999999": `value "99999999999" invalid for option interval (number expected)`,
		"--stop=1":               "option stop does not take an argument",
		"./web --port=8080": "--port=8080 comes after the command ./web: move it before the command if it is for " +
			"start_server, or write -- before the command if it is for the worker",
		"--=1": "unknown option: ",
	} {
		_, err := normalized(strings.Fields(line))
		if !errors.Is(err, ErrUsage) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func FuzzArgsIsIdempotent(f *testing.F) {
	f.Add("--port=1 --int 3 -- x --y")
	f.Add("-re")
	f.Fuzz(func(t *testing.T, line string) {
		once, err := normalized(strings.Fields(line))
		if err != nil {
			return
		}
		if again, err := normalized(once); err != nil || !slices.Equal(again, once) {
			t.Fatalf("%q is %q, which is %q: %v", line, once, again, err)
		}
	})
}

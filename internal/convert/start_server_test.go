package convert

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/internal/starter"
)

// The start_server command and convert must agree on what a command line means.
func TestConvertedStartServerLineRunsTheProgramOfTheCommand(t *testing.T) {
	for _, flags := range []string{
		"", "--interval=0", "--interval=7 --backlog=9 --port=80 --port=u53",
		"--port=[::1]:8080=7 --path=a/b.sock --port=08081",
		"--enable-auto-restart --auto-restart-interval=100", "--kill-old-delay=3 --envdir=env --status-file=s --dir=d",
		"--signal-on-hup=USR1 --signal-on-term=SIGINT", "--ready=notify --stop-timeout=30", "--ready=accept --port=80",
		"--ready=http=http://127.0.0.1:9/ --interval=2", "--ready=tcp=127.0.0.1:9", "--ready=exec=./check",
		"--set=reload.preflight=[\"true\"] --set=health.method=\"exec\" --set=health.command=[\"true\"]",
		"--set=hooks.after_reload=[\"true\"] --set=workers=3", "--int 3 -kill 2",
	} {
		words := append(strings.Fields(flags), "--", "./server", "-v")
		line := must.Get(starter.Parse(words))(t)
		o := &starter.Arguments{Given: line.Given, Command: line.Command, WorkDir: "/srv/app",
			Getenv: func(string) string { return "" }, Later: true}
		command := must.Get(o.Load())(t)
		r := must.Get(Convert(source.Input{Args: append([]string{"start_server"}, words...)}, elsewhere("testdata")))(t)
		converted, err := config.Parse("/srv/app", "converted", []byte(r.Text))
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Text)
		}
		if got, want := converted.Programs[0], command.Programs[0]; !got.Equal(want) {
			t.Errorf("%s: convert makes\n%+v\nthe command runs\n%+v", flags, got, want)
		}
	}
}

package tests

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestCommandsTakeTheOnlyProgram(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, keeps("1h"))
	m.Serves(1)
	for _, c := range []struct{ args, want string }{
		{"scale 2", "web: 2 workers (was 1)\n"},
		{"signal CONT", "web: CONT sent to the workers\n"},
		{"kill --generation 1", "web: KILL sent to the workers of generation 1\n"},
		{"pause --for 1m", "web: paused until "},
		{"resume", "web: resumed\n"},
		{"restart", "web: generation 2 serves after "},
		{"start", "web: already running: generation 2 "},
		{"stop", "web: stopped\n"},
	} {
		if out := m.CtlOK(strings.Fields(c.args)...); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s", c.args, out)
		}
	}
	m.Write(lab.Web + strings.ReplaceAll(lab.Web, "program.web", "program.api"))
	m.CtlOK("reload")
	for _, args := range []string{"scale 2", "signal CONT", "pause --for 1m", "stop", "promote", "abort"} {
		m.CtlFails(2, []string{"there are several programs: name one of api, web"}, strings.Fields(args)...)
	}
}

const talks = "command = [\"sh\", \"-c\", \"echo NAME says so; echo; read -r line <{dir}/NAME; printf 'NAME: " +
	"\\\\033[2J%s\\\\n' $line; exec sleep 1000\"]\nstdout = \"capture\"\n"

// TestLogsGoOnAfterAnUpgrade: of one program and of all.
func TestLogsGoOnAfterAnUpgrade(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Gate("api")
	m.Start("[program.api]\n" + strings.ReplaceAll(talks, "NAME", "api"))
	m.AwaitN(1, lab.Says(lab.GenerationServes))
	running := []*lab.Running{m.CtlStart("logs"), m.CtlStart("logs", "api", "--follow")}
	for _, r := range running {
		r.Says("api says so\n")
	}
	m.Upgrade(lab.Upgraded)
	m.Open(m.Path("api"))
	for _, r := range running {
		r.Says("api: ")
		if n := strings.Count(r.Output(), "api says so\n"); n != 1 {
			t.Errorf("the line from before the upgrade is there %d times", n)
		}
	}
}

// TestLogsWithoutAProgramFollowsAll: those that are there, and one that comes later.
func TestLogsWithoutAProgramFollowsAll(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	config := ""
	for _, name := range []string{"api", "worker", "web"} {
		m.Gate(name)
		if name != "web" {
			config += "[program." + name + "]\n" + strings.ReplaceAll(talks, "NAME", name)
		}
	}
	config += "[program.mute]\ncommand = [{sleep}]\nstdout = \"null\"\nstderr = \"null\"\n"
	m.Start(config)
	m.AwaitN(3, lab.Says(lab.GenerationServes))
	if out := m.CtlOK("logs", "--follow=false"); strings.Count(out, " says so\n") != 2 ||
		!strings.Contains(out, "api    | api says so\n") ||
		!strings.Contains(out, "supervisord: not captured, so not shown: the output of mute\n") {
		t.Errorf("logs: %s", out)
	}
	r := m.CtlStart("logs")
	r.Says("worker | worker says so\n")
	m.Open(m.Path("api"))
	r.Says("api    | api: ")
	m.Write(config + "[program.web]\n" + strings.ReplaceAll(talks, "NAME", "web"))
	m.CtlOK("reload", "web")
	r.Says("web    | web says so\n")
	m.CtlFails(1, []string{"no output of program mute is captured"}, "logs", "mute")
}

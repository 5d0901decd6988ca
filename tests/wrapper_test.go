package tests

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// wrappers start what follows them, and end before it when they are told to stop.
var wrappers = map[string]string{
	"a shell":                   `"sh", "-c", "\"$@\"; true", "sh"`,
	"a shell in a shell":        `"sh", "-c", "\"$@\"; true", "sh", "sh", "-c", "\"$@\"; true", "sh"`,
	"a shell that passes it on": `"sh", "-c", "\"$@\" & trap \"kill $!\" TERM; wait", "sh"`,
	"a shell with jobs":         `"bash", "-c", "set -m; \"$@\"; true", "bash"`,
	"setsid":                    `"setsid", "-f", "-w"`,

	"Python": `"python3", "-c", "import subprocess, sys; subprocess.run(sys.argv[1:], close_fds=False)"`,
	"Node": `"node", "-e", "require('child_process').spawn(process.argv[1], process.argv.slice(2), ` +
		`{stdio: ['inherit', 'inherit', 'inherit', 3, 4].map((s, i) => i > 2 ? i : s)})"`,
}

// wrapped is web behind a wrapper. Its generations share a unix socket, so that the old one is told to stop with
// requests in hand.
func wrapped(wrapper, stop string, args ...string) string {
	return strings.Replace(strings.Replace(lab.WebWith(append(args, "note={dir}/notes")...), "127.0.0.1:0", "unix:{dir}/s",
		1),
		"{worker}", wrapper+", {worker}", 1) + "[program.web.stop]\n" + stop
}

// busyReload reloads when the next generation is about to accept, so that the old one is told to stop with a slow
// request in hand.
func busyReload(m *lab.Supervisord, wrapper, stop string) (answer func() string) {
	m.T.Helper()
	m.Serves(1)
	m.Write(wrapped(wrapper, stop, "accept="+m.Gate("gate")))
	m.Reload()
	m.Until("the next worker waits", func() bool { return strings.Contains(m.Read("notes"), "2 0 start") })
	answer = lab.Promise(m.T, "unix:"+m.Path("s"), "/slow?d=3s")
	m.Until("the request is in hand", func() bool { return strings.Contains(m.Read("notes"), "slow") })
	m.Open(m.Path("gate"))
	return answer
}

func TestServerOutlivesItsWrapperUntilItHasAnswered(t *testing.T) {
	t.Parallel()
	for name, wrapper := range wrappers {
		for _, stop := range []string{"", "group = true\n"} {
			t.Run(name+" "+strings.TrimSpace(stop), func(t *testing.T) {
				t.Parallel()
				lab.Need(t, strings.Trim(strings.SplitN(wrapper, ",", 2)[0], `"`))
				m := lab.Start(t, wrapped(wrapper, stop))
				answer := busyReload(m, wrapper, stop)
				left := m.Await(lab.Says(lab.WorkerOutlived), lab.PID(m.WorkerPID(1)))
				if m.Count(lab.Says(lab.GenerationGone), lab.Gen(1)) > 0 {
					t.Error("the generation counts as gone, although the server has a request in hand")
				}
				if got := answer(); !strings.Contains(got, "generation=1") {
					t.Errorf("the answer is %q", got)
				}
				m.Gone(1)
				m.Never(lab.Says(lab.WorkerKilled))
				if got := strings.Count(m.Read("notes"), "1 0 TERM"); got != 1 {
					t.Errorf("the server got TERM %d times", got)
				}
				for _, words := range []string{"killed by SIGTERM", "exited with status"} {
					if strings.Contains(left.Text, words) {
						return
					}
				}
				t.Errorf("the log does not say how the wrapper ended: %s", left.Text)
			})
		}
	}
}

package systemd_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// ownPortConfig is helloConfig with workers that are told of no socket, and open their port themselves.
var ownPortConfig = strings.Replace(helloConfig, "[program.hello]\n", "[program.hello]\ndialect = []\n", 1)

func TestServerThatOpensItsPortLosesNothingOverReloadsAndDeathsUnderTheUnit(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Start(ownPortConfig)
		l.StoreIs()
		load := l.Load("127.0.0.1:8080", 2, 2)
		for range 5 {
			l.Run("systemctl", "reset-failed", "supervisord")
			l.kill()
			l.Run("systemctl", "reload", "supervisord")
		}
		l.StoreIs()
		load.Lossless()
	})
}

// A prefork server restarts its children, which may bind again; here a worker binds for the first time.
func TestWorkerThatBindsAfterADeathOfTheMasterIsAnswered(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		late := strings.Replace(ownPortConfig, `command = ["/usr/local/bin/hello",`,
			`command = ["/bin/sh", "-c", "while ! [ -e /tmp/go ]; do /bin/sleep 0.01; done; exec /usr/local/bin/hello `+
				`\"$@\"", "sh",`, 1)
		l.Prepare(late)
		l.Run("systemctl", "start", "--no-block", "supervisord")
		l.Until("the workers run", func() bool { return len(l.Workers("sh")) >= 2 })
		kept := ""
		l.Until("the store has two records, a socket, and of each worker a pidfd, two notify descriptors and its filter",
			func() bool {
				last := kept
				kept = l.Property("supervisord", "NFileDescriptorStore")
				// and the report of a worker whose command did not run yet when the store was told of it
				return kept == last && slices.Contains([]string{"11", "12", "13"}, kept)
			})
		old := l.Master()
		l.Run("kill", "-9", old)
		l.Until("there is another master", func() bool { now := l.Master(); return now != old && now != "0" })
		before := l.Workers("sh")
		l.Run("touch", "/tmp/go")
		l.Until("the service is up", func() bool { return l.Property("supervisord", "ActiveState") == "active" })
		if body, err := l.Get("http://127.0.0.1:8080/"); err != nil || !strings.Contains(body, "generation=1") {
			t.Errorf("%q, %v; the workers were %v and are %v", body, err, before, l.Workers("hello"))
		}
	})
}

// The children bind all the time, so many ask when nobody answers. With -long the deaths last for minutes.
func TestPreforkServerThatOpensItsPortLosesNothingWhenTheMasterIsKilledAgainAndAgain(t *testing.T) {
	deaths := 8
	if lab.Long() {
		deaths = 200
	}
	Each(t, func(t *testing.T, l *Lab) {
		l.Install("tests/systemd/probe", "/usr/local/bin/probe")
		l.Start(`
[program.prefork]
command = ["/usr/local/bin/probe", "prefork", "127.0.0.1:8080", "3"]
listen = ["127.0.0.1:8080"]
dialect = []
`)
		load := l.Load("127.0.0.1:8080", 4, 0)
		began := time.Now()
		for range deaths {
			seen := load.Requests()
			l.Until("some children were replaced", func() bool { return load.Requests() > seen+200 })
			l.Run("systemctl", "reset-failed", "supervisord")
			l.kill()
		}
		t.Logf("%d deaths in %s, %d requests", deaths, time.Since(began), load.Requests())
		l.Run("systemctl", "reload", "supervisord")
		load.Lossless()
		for _, entry := range l.Journal("_SYSTEMD_UNIT=supervisord.service") {
			if strings.Contains(entry["MESSAGE"], "cannot bind") {
				t.Error(entry["MESSAGE"])
			}
		}
	})
}

package systemd_test

import (
	"strings"
	"testing"
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
			`command = ["/bin/sh", "-c", "while ! [ -e /tmp/go ]; do /bin/sleep 0.01; done; exec /usr/local/bin/hello \"$@\"", "sh",`, 1)
		l.Prepare(late)
		l.Run("systemctl", "start", "--no-block", "supervisord")
		l.Until("the workers run", func() bool { return len(l.Workers("sh")) >= 2 })
		l.Until("the store has two records, a socket, and of each worker a pidfd, two notify descriptors, a report and its filter", func() bool {
			return l.Property("supervisord", "NFileDescriptorStore") == "13"
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

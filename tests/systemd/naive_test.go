package systemd_test

import (
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
)

// naiveConfig runs examples/measure/naive, which calls http.Server.Shutdown on TERM and nothing else.
const naiveConfig = `
[program.naive]
command = ["/usr/local/bin/naive"]
[[program.naive.listen]]
name    = "http"
address = "127.0.0.1:8080"
[program.naive.ready]
method = "notify"
`

// Reloads never rest here, so every death of the master is in the middle of one.
func TestKillOfTheMasterEachSecondAmongReloadsLosesNoRequestOfAServerThatShutsDown(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Install("examples/measure/naive", "/usr/local/bin/naive")
		l.Start(lab.WithHandover(naiveConfig))
		l.loseNothing("Go, Shutdown", lab.Clients{Count: 100, Dial: l.Dial("127.0.0.1:8080"),
			Ask: load.Get("http://lab/", nil)})
	})
}

func TestKillOfTheMasterEachSecondAmongReloadsLosesNoDatagram(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Install("examples/measure/naive", "/usr/local/bin/naive")
		l.Start(`
[program.naive]
command = ["/usr/local/bin/naive", "-udp"]
listen = ["udp:127.0.0.1:8080"]
`)
		l.loseNothing("echo of datagrams", lab.Clients{Count: 50, Dial: l.Dial("udp:127.0.0.1:8080"), Ask: load.Echo})
	})
}

// loseNothing kills the master each second and reloads all the time, under a load that must lose nothing.
func (l *Lab) loseNothing(what string, clients lab.Clients) {
	t := l.t
	t.Helper()
	storm := lab.Storm{Clients: clients, Requests: 100_000, Every: 100 * time.Millisecond}
	ticks, deaths := 0, 0
	toll := storm.Blow(t, func() {
		ticks++
		switch {
		case ticks%10 == 0:
			l.Run("systemctl", "reset-failed", "supervisord") // so many deaths in a row are more than StartLimitBurst
			if code := l.signal("KILL"); code == 0 {
				deaths++
			}
		case ticks%3 == 0:
			l.signal("HUP")
		}
	}, func() int { return deaths })
	// the journal is shown at the end
	toll.Lossless(t, what+", kill -9 of the master each second, HUP every 300 ms", &lab.Transcript{})
	l.Until("the last reload has ended", func() bool { return len(l.Workers("naive")) == 1 })
	served := 0
	for _, entry := range l.Journal("_SYSTEMD_UNIT=supervisord.service") {
		if strings.HasPrefix(entry["MESSAGE"], lab.GenerationServes) {
			served++
		}
	}
	if served < 3 { // a busy machine makes few between two deaths
		t.Errorf("%d deaths and only %d generations served", deaths, served)
	}
	t.Logf("%d reloads, %d deaths", served, deaths)
}

// signal sends the master a signal if it is up: one that is just starting would die of HUP. It returns 0 if it did.
func (l *Lab) signal(name string) (code int) {
	_, code = l.Try("sh", "-c", "systemctl is-active -q supervisord && systemctl kill -s "+name+
		" --kill-who=main supervisord")
	return code
}

package systemd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
)

// storms are loads on examples/measure/naive, which calls http.Server.Shutdown on TERM and nothing else, or echoes
// datagrams.
var storms = []struct {
	what, config, address string
	clients               int
	ask                   load.Ask
}{
	{"a server that shuts down", "command = [\"/usr/local/bin/naive\"]\nready.method = \"notify\"\n" +
		"[[program.naive.listen]]\nname = \"http\"\naddress = ", "127.0.0.1:8080", 100, load.Get("http://lab/", nil)},
	{"echo of datagrams", "command = [\"/usr/local/bin/naive\", \"-udp\"]\n[[program.naive.listen]]\naddress = ",
		"udp:127.0.0.1:8080", 50, load.Echo},
}

// Reloads never rest here, so every death of the master is in the middle of one.
func TestKillOfTheMasterEachSecondAmongReloadsLosesNothing(t *testing.T) {
	t.Parallel()
	for _, suite := range suites {
		if !lab.Long() && suite != newest {
			continue
		}
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			s := &story{Lab: boot(t, suite), t: t}
			t.Cleanup(func() { lab.Must(t, s.Close()) })
			lab.Must(t, s.furnish())
			lab.Must(t, s.install([]string{"examples/measure/naive"}))
			for _, storm := range storms {
				config := fmt.Sprintf("[program.naive]\n%s%q\n", storm.config, storm.address)
				lab.Must(t, s.Write("/etc/supervisord/config.toml", []byte(lab.WithHandover(config)), 0o644))
				lab.Must(t, s.prepare(nil))
				lab.Must(t, s.run([]string{"systemctl", "start", "supervisord"}))
				s.losesNothing(storm.what, lab.Clients{Count: storm.clients, Dial: s.Dial(storm.address), Ask: storm.ask})
			}
		})
	}
}

// losesNothing kills the master each second and reloads all the time, under a load that must lose nothing.
func (s *story) losesNothing(what string, clients lab.Clients) {
	t := s.t
	t.Helper()
	storm := lab.Storm{Clients: clients, Requests: 100_000, Every: 100 * time.Millisecond}
	ticks, deaths := 0, 0
	toll := storm.Blow(t, func() {
		ticks++
		switch {
		case ticks%10 == 0:
			// so many deaths are more than StartLimitBurst
			if s.sh("systemctl reset-failed supervisord; "+signal("KILL")) == nil {
				deaths++
			}
		case ticks%3 == 0:
			s.sh(signal("HUP")) //nolint:errcheck // it may be starting
		}
	}, func() int { return deaths })
	// the journal is shown at the end
	toll.Lossless(t, what+", kill -9 of the master each second, HUP every 300 ms", &lab.Transcript{})
	lab.Must(t, wait(func() error {
		if now := s.pids("naive"); len(now) != 1 {
			return fmt.Errorf("the last reload has not ended: the workers are %v", now)
		}
		return nil
	}))
	lab.Must(t, s.journal([]string{"_SYSTEMD_UNIT=supervisord.service"}))
	served := strings.Count(s.out, lab.GenerationServes)
	if served < 3 { // a busy machine makes few between two deaths
		t.Errorf("%d deaths and only %d generations served:\n%s", deaths, served, s.out)
	}
	t.Logf("%d reloads, %d deaths", served, deaths)
}

// signal sends the master a signal if it is up: one that is just starting would die of HUP.
func signal(name string) string {
	return "systemctl is-active -q supervisord && systemctl kill -s " + name + " --kill-who=main supervisord"
}

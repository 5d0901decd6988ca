package naive

import (
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestShutdownLosesNoRequestWithAHUPEachSecond(t *testing.T) {
	m := lab.Start(t, naive(t, "127.0.0.1:0"))
	m.Serves(1)
	blow(m, storm(m.Address())).Lossless(t, "Go, Shutdown, HUP each second", m.Log)
}

func TestShutdownLosesNoRequestWithAHUPEvery100Milliseconds(t *testing.T) {
	m := lab.Start(t, naive(t, "127.0.0.1:0"))
	m.Serves(1)
	s := storm(m.Address())
	s.Requests, s.Every, s.Reloads = 1_000_000, 100*time.Millisecond, 20
	blow(m, s).Lossless(t, "Go, Shutdown, HUP every 100 ms", m.Log)
}

func TestWorkerThatDiesOfTERMLosesNoRequest(t *testing.T) {
	m := lab.Start(t, naive(t, "127.0.0.1:0", "-die"))
	m.Serves(1)
	blow(m, storm(m.Address())).Lossless(t, "Go, no TERM handler, HUP each second", m.Log)
}

func TestShutdownBehindTLSLosesNoRequest(t *testing.T) {
	m := lab.Start(t, naive(t, "127.0.0.1:0", "-tls"))
	m.Serves(1)
	s := storm(m.Address())
	s.Count, s.Dial = 100, overTLS(m.Address())
	if !lab.Long() { // a handshake costs a lot, and a client that waits for a CPU for longer than drain.silence is lost
		s.Count, s.Requests = 20, 30_000
	}
	s.Beside = append(beside(s.Dial), lab.Clients{
		Name: "handshake 1 s after the connect", Count: 4, Dial: lateTLS(m.Address()), Ask: s.Ask, RoundTrip: time.Second,
	})
	blow(m, s).Lossless(t, "Go, Shutdown, TLS", m.Log)
}

// roundTrip is how far away distant clients are.
const roundTrip = 20 * time.Millisecond

func TestShutdownLosesNoRequestOfDistantClients(t *testing.T) {
	away := lab.Apart(t, roundTrip)
	m := lab.Prepare(t)
	m.Via = away.Via()
	address := lab.FarEnd + ":8080"
	m.Start(naive(t, address))
	m.Serves(1)
	s := storm(address)
	s.Count, s.Dial, s.RoundTrip, s.Beside = 100, away.Dial(address), roundTrip, beside(away.Dial(address))
	blow(m, s).Lossless(t, "Go, Shutdown, clients 20 ms away", m.Log)
}

func TestUpgradesInAStormOfHUPsLoseNoRequestOfAServerThatShutsDown(t *testing.T) {
	m := lab.WithOwnBinary(t)
	m.Start(naive(t, "127.0.0.1:0"))
	m.Serves(1)
	s := storm(m.Address())
	s.Every, s.Reloads = 10*time.Millisecond, 20
	ticks, asked := 0, 0
	upgraded := func() int { return m.Count(lab.Says(lab.Upgraded)) }
	toll := s.Blow(t, func() {
		m.Signal(syscall.SIGHUP)
		if ticks++; ticks%25 == 0 && upgraded() == asked {
			m.Signal(syscall.SIGUSR2)
			asked++
		}
	}, upgraded)
	m.AwaitN(asked, lab.Says(lab.Upgraded)) // between two images nobody would catch the TERM at the end
	toll.Lossless(t, "Go, Shutdown, upgrades under HUPs every 10 ms", m.Log)
	if served := m.Count(lab.Says(lab.GenerationServes)); served < 10 {
		t.Errorf("only %d generations served", served)
	}
}

package tests

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/socket"
)

// inherits and binds are programs whose worker has a state for each client, and knows nothing of generations.
const (
	inherits = `
command = [{worker}, "counts"]
ready = { method = "notify" }
`
	binds = `
command = ["/usr/bin/python3", "-S", "-c", '''
import collections, os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 3000))
got = collections.Counter()
while True:
    _, who = s.recvfrom(100); got[who] += 1
    s.sendto(f"{os.environ['SUPERVISORD_GENERATION']} {got[who]}".encode(), who)
''']
bind = "on"
`
)

// flows runs one of the two.
func flows(t *testing.T, worker, drain string) *lab.Supervisord {
	t.Helper()
	port := ""
	if worker == binds {
		lab.Need(t, "/usr/bin/python3")
		port = `binds = "udp:127.0.0.1:3000"`
	}
	if wrong := (socket.Spec{Handover: socket.Flow}).Unpermitted(); wrong != nil {
		t.Skip(wrong)
	}
	m := lab.WithOwnBinary(t)
	m.Start(`
[program.game]
` + worker + `
drain = { ` + drain + ` }
[[program.game.listen]]
name = "udp"
address = "udp:127.0.0.1:0"
handover = "flow"
flows = 4096
` + port)
	m.Serves(1)
	return m
}

// player is a client, and what it knows of its flow.
type player struct {
	net.Conn
	generation, sent int
}

func newPlayer(t *testing.T, m *lab.Supervisord) *player {
	t.Helper()
	conn, err := net.Dial("udp", strings.TrimPrefix(m.Status().Programs[0].Listeners[0].Address, "udp:"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &player{Conn: conn}
}

// move sends a datagram, and returns which generation has answered, and how many datagrams it has got of this client.
func (p *player) move(t *testing.T) (generation, count int) {
	t.Helper()
	if _, err := p.Write([]byte("move")); err != nil {
		t.Fatal(err)
	}
	if err := p.SetReadDeadline(time.Now().Add(lab.Patience)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	n, err := p.Read(buffer)
	if err == nil {
		_, err = fmt.Sscan(string(buffer[:n]), &generation, &count)
	}
	if err != nil {
		t.Fatal(err)
	}
	return generation, count
}

// plays fails unless the client reaches the generation where it has begun, which knows it.
func (p *player) plays(t *testing.T) {
	t.Helper()
	generation, count := p.move(t)
	if p.sent++; p.generation == 0 {
		p.generation = generation
	}
	if generation != p.generation || count != p.sent {
		t.Fatalf("datagram %d reaches generation %d as its number %d, and it began at %d", p.sent, generation, count,
			p.generation)
	}
}

func TestFlowsStayAtTheirGenerationOverReloadsAndUpgrades(t *testing.T) {
	t.Parallel()
	for name, worker := range map[string]string{"inherited": inherits, "bound by itself": binds} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			staysOverReloadsAndUpgrades(t, flows(t, worker, `timeout = "1h", silence = "1h"`))
		})
	}
}

func staysOverReloadsAndUpgrades(t *testing.T, m *lab.Supervisord) {
	t.Helper()
	var players []*player
	for round := range 8 {
		for range 10 {
			players = append(players, newPlayer(t, m))
		}
		for range 2 {
			for _, p := range players {
				p.plays(t)
			}
		}
		if late := players[len(players)-1]; late.generation != 1+(round+1)/2 {
			t.Fatalf("a client of round %d begins at generation %d", round, late.generation)
		}
		if round%2 == 0 {
			m.Reload()
			m.Serves(2 + round/2)
		} else {
			m.Upgrade(lab.Upgraded)
		}
	}
}

func TestOldGenerationEndsWhenItsFlowsAreSilent(t *testing.T) {
	t.Parallel()
	m := flows(t, inherits, `timeout = "1h", silence = "100ms"`)
	p := newPlayer(t, m)
	p.plays(t)
	m.Reload()
	m.Gone(1)
	if generation, count := p.move(t); generation != 2 || count != 1 {
		t.Errorf("the client reaches generation %d as number %d", generation, count)
	}
}

package traffic

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	"example.org/supervisord/internal/lab/load"
)

// kind is a kind of load on one program.
type kind struct {
	program, name string
	loops         int
	perSecond     float64 // requests, of all loops together, if Rate is defaultRate; 0: as many as the answers allow
	keep          int
	setUp         func(*flow) (send func(since time.Time) load.Attempt)
}

// kinds are the loads. Those with a fixed pace come first; kept requests, the cheapest, are what is left of the rate.
var kinds = []kind{
	{"naive", "new", 10, 200, 0, (*flow).http},
	{"naive", "session", 10, 150, 1, (*flow).session},
	{"naive", "download", 4, 0, 0, (*flow).slowly},
	{"naive", "parts", 6, 0, 0, (*flow).inParts},
	{"polite", "new", 8, 150, 0, (*flow).http},
	{"polite", "download", 4, 0, 0, (*flow).paced},
	{"polite", "websocket", 8, 100, 1, (*flow).messages},
	{"udp", "datagram", 4, 200, 1, (*flow).datagrams},
	{"polite", "kept", 20, defaultRate - 800, 1, (*flow).http},
}

func (t *Generator) start() {
	addresses := map[string]string{"naive": t.c.Naive, "polite": t.c.Polite, "udp": t.c.UDP}
	for _, k := range kinds {
		if addresses[k.program] == "" {
			continue
		}
		for range k.loops {
			l := &flow{
				t: t, program: k.program, kind: k.name, address: addresses[k.program], number: uint64(len(t.loops) + 1),
				random: rand.New(rand.NewPCG(t.c.Seed, uint64(len(t.loops)))),
			}
			l.now = exchange{Program: l.program, Load: l.kind}
			l.sender = &load.Driver{Ask: l.ask, Keep: k.keep, Timeout: t.c.timeout,
				Dial: func(ctx context.Context) (net.Conn, error) {
					return l.dial(ctx, new(net.Dialer), "tcp")
				}}
			t.loops = append(t.loops, l)
			t.load.Repeat(l.once(k.setUp(l)), 1, 0, l.pace(k.perSecond*float64(t.c.Rate)/defaultRate/float64(k.loops)))
		}
	}
}

// pace returns the pauses that keep so many requests a second. A loop that is late by more than a second does not make
// up for the rest.
func (l *flow) pace(perSecond float64) func() time.Duration {
	if perSecond == 0 {
		return func() time.Duration { return time.Millisecond }
	}
	every := time.Duration(float64(time.Second) / perSecond)
	next := l.t.began // the loops of a kind send together, which costs a third less: one wake-up is for many
	return func() time.Duration {
		next = next.Add(every)
		wait := time.Until(next)
		if wait < -time.Second {
			next = time.Now().Add(-time.Second)
		}
		return max(wait, 0)
	}
}

// http is the load of short requests.
func (l *flow) http() func(time.Time) load.Attempt { return l.sender.Send }

// sessionPause is how long a session may pause: a naive server may be told to stop when its connections were silent for
// drain.silence, 5 s by default. A machine where everybody waits for a CPU needs the rest.
const sessionPause = 2 * time.Second

// session closes its connection after a few requests, and before a pause that would be too long.
func (l *flow) session() func(time.Time) load.Attempt {
	l.left = 1 + l.random.IntN(4)
	return func(since time.Time) load.Attempt {
		if time.Since(l.last) > sessionPause {
			l.sender.Close()
		}
		return l.sender.Send(since)
	}
}

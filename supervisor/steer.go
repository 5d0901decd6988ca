package supervisor

import (
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// steerRetry is how soon new connections are steered again that could not be.
const steerRetry = time.Second

// steer sends new connections where the program wants them. While that fails, nobody looks whether old workers are quiet.
func (p *runner) steer() {
	before := p.astray
	p.astray = ""
	if shares := p.shares(p.core.Steering); len(shares) > 0 {
		if err := p.s.table.Steer(shares); err != nil {
			p.astray = err.Error()
		}
	}
	if p.astray == "" {
		return
	}
	if p.astray != before {
		p.log.Error("cannot steer new connections; they go where they went before", zap.String("error", p.astray))
	}
	p.s.after(steerRetry, func() {
		if p.astray != "" && p.core.Goal == program.Run {
			p.steer()
			p.quiesce()
		}
	})
}

// shares says the same with the lanes of the generations. One that is gone has none.
func (p *runner) shares(of []program.Share) []socket.Part {
	var shares []socket.Part
	for _, s := range of {
		if g := p.generations[s.Generation]; g != nil {
			shares = append(shares, socket.Part{Lanes: g.lanes, Slots: s.Slots, Weight: s.Weight, Unit: s.Unit})
		}
	}
	return shares
}

// share returns the part of new connections that a generation gets, in parts of 10,000.
func (p *runner) share(generation int) int {
	all, own := 0, 0
	for _, s := range p.core.Steering {
		all += s.Weight
		if s.Generation == generation {
			own += s.Weight
		}
	}
	if all == 0 {
		return 0
	}
	return own * program.Whole / all
}

// pause lets new connections wait in the kernel, or ends that: also at listeners that only generations still have.
func (p *runner) pause(paused bool) {
	keys := keysOf(p.listeners)
	for _, g := range p.generations {
		if !paused {
			keys = append(keys, g.keys()...)
		}
	}
	if err := p.s.table.Pause(keys, paused); err != nil {
		p.log.Error("cannot pause or resume new connections", zap.Bool("paused", paused), zap.Error(err))
	}
}

// keys lists the keys of the listeners of a generation.
func (g *resources) keys() (keys []string) {
	for _, ln := range g.lanes {
		keys = append(keys, ln.Listener.Key())
	}
	return keys
}

func keysOf(listeners []socket.Resolved) []string {
	var keys []string
	for _, l := range listeners {
		keys = append(keys, l.Key())
	}
	return keys
}

package program

import "slices"

// steer emits Steer if new connections are to go elsewhere than before.
func (p *Program) steer() {
	if to := p.steering(); !slices.EqualFunc(to, p.Steering, Share.equal) {
		p.Steering = to
		p.actions = slices.Insert(p.actions, 0, Action(Steer{to}))
	}
}

// steering says where new connections go. It is the only place that does.
func (p *Program) steering() []Share {
	if p.Serving == nil {
		return p.Steering
	}
	return []Share{{Generation: p.Serving.Number, Weight: Whole}}
}

func (s Share) equal(t Share) bool {
	return s.Generation == t.Generation && s.Weight == t.Weight && slices.Equal(s.Slots, t.Slots)
}

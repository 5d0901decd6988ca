package socket

import (
	"context"
	"errors"
	"net"

	"example.org/supervisord/socket/diag"
)

// Need is what a generation needs of its listeners.
type Need struct {
	Slots  int  // sockets of a listener with PerSlot; 0: as many as are configured
	Shared bool // the lane that serves now, beside the generation that has it
}

// Part is a part of the new connections.
type Part struct {
	Claims []string // of the generation that gets it
	Slots  []int    // of its listeners with PerSlot only these slots; nil: all
	Weight int      // relative to the other parts
}

// LaneStatus describes one lane of a listener.
type LaneStatus struct {
	Number     int     `json:"number"`
	Members    []int   `json:"members"`    // their numbers in the kernel's group
	Generation int     `json:"generation"` // for the caller to fill in; 0: none has it
	Share      float64 `json:"share"`      // of the new connections, 0 to 1
	Queued     int     `json:"queued"`     // connections that wait to be accepted
	Deaf       bool    `json:"deaf"`       // SYNs are dropped; the client's kernel sends them again
	Claim      string  `json:"-"`
}

// Steer sends new connections to these parts, and to no other sockets of their listeners.
func (t *Table) Steer(parts []Part) error {
	most := Part{}
	for _, s := range parts {
		if s.Weight > most.Weight {
			most = s
		}
	}
	return t.serve(most.Claims)
}

// Own reports whether at least one lane of these claims belongs to their generation alone.
func (t *Table) Own(claims []string) bool { return false }

// Deafen lets the lanes of these claims, or of their listeners with PerSlot only the sockets of these slots, drop what arrives.
func (t *Table) Deafen(claims []string, slots []int) {}

// Left returns the lanes of these claims that get no new connections now; of listeners with PerSlot only the sockets of these slots.
func (t *Table) Left(claims []string, slots []int) []diag.Target { return nil }

// Pause lets new connections of these listeners wait in the kernels of their clients.
func (t *Table) Pause(keys []string, paused bool) error {
	return errors.New("cannot pause: not implemented")
}

// Probe is a way to reach one lane, whoever serves.
type Probe struct{}

// Probe prepares connections to the socket that a worker in this slot has.
func (t *Table) Probe(claim string, slot int) (*Probe, error) {
	return nil, errors.New("cannot probe: not implemented")
}

// Dial connects. It is not for the loop.
func (p *Probe) Dial(ctx context.Context) (net.Conn, error) {
	return nil, errors.New("cannot probe: not implemented")
}

// End ends the probe. It is for the loop.
func (p *Probe) End() {}

// Lanes describes the lanes of a listener.
func (t *Table) Lanes(key string) []LaneStatus { return nil }

// Shared says why a listener whose configuration says Steer is shared all the same; "": it is as configured.
func (t *Table) Shared(key string) string { return "" }

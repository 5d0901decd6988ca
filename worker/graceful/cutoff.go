package graceful

import (
	"fmt"
	"net"
	"strings"
	"time"
)

// CutOff is the error of a Serve that had to close something before it was finished.
type CutOff struct {
	After time.Duration // since the stop began
	Conns []CutConn     // connections with a request in flight, or taken over by their handler
	Work  int           // Work functions that had not returned
}

// CutConn is a connection that was closed before it was finished.
type CutConn struct {
	Local, Remote net.Addr
	Doing         Doing
	For           time.Duration // how long it had been doing that
}

// Doing is what a connection is doing.
type Doing string

// What a connection can be doing.
const (
	Fresh    Doing = "fresh"    // accepted; nothing has arrived yet
	Active   Doing = "active"   // a request is in flight, or partly read
	Idle     Doing = "idle"     // between two requests
	Hijacked Doing = "hijacked" // taken over by its handler: a WebSocket, a tunnel
)

func (c *CutOff) Error() string {
	var parts []string
	for _, d := range []Doing{Active, Hijacked} {
		n := 0
		for _, conn := range c.Conns {
			if conn.Doing == d {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s connections", n, d))
		}
	}
	if c.Work > 0 {
		parts = append(parts, fmt.Sprintf("%d pieces of work", c.Work))
	}
	return fmt.Sprintf("cut off %v after the stop began: %s", c.After.Round(time.Millisecond), strings.Join(parts, ", "))
}

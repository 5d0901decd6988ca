package graceful

import (
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
)

// connectionIDLength is the longest ID that supervisord recognizes as the server's: what clients make up has 8 bytes or
// more (RFC 9000, 7.2).
const connectionIDLength = 7

// ConnectionIDs makes connection IDs for a QUIC server whose listener has handover = "quic": one byte of each has the
// worker's lane, which tells supervisord's program in the kernel where the datagrams of the connection belong. The
// other six bytes are random. A server must issue no other IDs, and none that are longer.
//
// It has the methods of quic-go's ConnectionIDGenerator, but does not depend on quic-go: wrap the bytes with
// quic.ConnectionIDFromBytes. Several goroutines may use it at once.
type ConnectionIDs struct {
	lane  byte
	at    int
	steer bool
}

// NewConnectionIDs reads SUPERVISORD_LANE and SUPERVISORD_LANE_BYTE. Without these, as when the program runs by hand,
// all bytes of the IDs are random.
func NewConnectionIDs() (*ConnectionIDs, error) {
	lane := os.Getenv("SUPERVISORD_LANE")
	if lane == "" {
		return &ConnectionIDs{}, nil
	}
	number, err := strconv.ParseUint(lane, 10, 8)
	if err != nil {
		return nil, fmt.Errorf("SUPERVISORD_LANE=%s is invalid: it must be a number from 0 to 255", lane)
	}
	at := os.Getenv("SUPERVISORD_LANE_BYTE")
	index, err := strconv.ParseUint(at, 10, 8)
	if err != nil || index >= connectionIDLength {
		return nil, fmt.Errorf("SUPERVISORD_LANE_BYTE=%s is invalid: it must be a number from 0 to %d", at,
			connectionIDLength-1)
	}
	return &ConnectionIDs{byte(number), int(index), true}, nil
}

// GenerateConnectionID returns a new ID. There is never an error.
func (c *ConnectionIDs) GenerateConnectionID() ([]byte, error) {
	id := make([]byte, connectionIDLength)
	_, _ = rand.Read(id) // never fails
	if c.steer {
		id[c.at] = c.lane
	}
	return id, nil
}

// ConnectionIDLen returns the length of the IDs in bytes.
func (c *ConnectionIDs) ConnectionIDLen() int { return connectionIDLength }

package worker

import (
	"context"
	"net"
	"time"

	"example.org/supervisord/worker/bind"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

// Spec is everything that is needed to start one worker. It is complete plain data: nothing is looked up later.
type Spec struct {
	Command     []string // argv; Command[0] without a slash is looked up in the PATH of Environment, with one relative to Directory
	Directory   string   // absolute
	Environment []string // KEY=VALUE, complete but for LISTEN_PID, NOTIFY_SOCKET, NOTIFY_FD, WATCHDOG_USEC and WATCHDOG_PID, which Start adds
	Told        []string // more of it, which describes the sockets: for the worker, not for a command that probes it
	Sockets     []int    // our descriptors, for the worker's fd 3 and up; never changed, never closed by this package; they must stay open until Exited
	Places      []int    // the worker's number of each of Sockets, if other than 3 and up: 0, which is stdin, or from 3
	Listeners   []string // the listener of each of Sockets, for Dial

	// Binds is what the worker may bind itself to get each of Sockets: see package bind. None: its bind(2) is not answered.
	Binds []bind.Address

	Unbound string // why its bind(2) is not answered, and what to do, for people; "": it is, or it has no listeners

	Stdin  []byte // what it reads there, of any size; none: /dev/null
	Stdout output.Destination
	Stderr output.Destination

	// Captured takes what the streams of the kind Capture say, in whole lines where that is possible. It must not wait, nor keep
	// lines. Without it they are dropped.
	Captured func(stream string, pid int, lines []byte) `json:"-"`

	Watchdog   time.Duration     // told to the worker as WATCHDOG_USEC; 0: none
	Credential *spawn.Credential // nil: the supervisor's own
	Limits     spawn.Limits
	Ready      ready.Check

	// Widen makes the socket of a UDP listener one of IPv6, for a worker that binds one: see socket.Table.Widen. It changes what is
	// behind the descriptor in Sockets.
	Widen func(ctx context.Context, listener string) error `json:"-"`

	// Dial connects a probe to the socket that this worker has of a listener: see ready.Asked.
	Dial func(ctx context.Context, listener string) (net.Conn, error) `json:"-"`
}

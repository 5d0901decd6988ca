package prove

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"example.org/supervisord/internal/lab/load"
)

// Cause is what usually makes workers lose requests in one way, and what to change.
type Cause struct {
	Kind       load.LossKind `json:"kind"`
	Connection string        `json:"connection"` // new, reused, or "" where it makes no difference
	Lost       int           `json:"lost"`
	Cause      string        `json:"cause"`
	Remedy     string        `json:"remedy"`
}

// drain is the remedy for what most workers do wrong when they stop.
const drain = "on TERM, let the worker stop accepting, answer the requests in flight and those that still arrive with \"Connection: close\", " +
	"give idle connections a moment for a last request, and only then close and end. For Go, worker/graceful does all of this " +
	"(http.Server.Shutdown alone does not); elsewhere use the server's graceful stop with a keep-alive or drain time above zero, " +
	"and if it needs another signal than TERM, set that in [program.NAME.stop] (nginx: QUIT; Apache: WINCH); " +
	"where the worker cannot do that, let TERM wait: handover = \"steer\" on the listener keeps new connections away from the old worker, " +
	"timeout in [program.NAME.drain] gives it time to finish, and idle there gives clients time to close idle connections"

// knownCause is a cause and the losses that it fits; an empty field fits all.
type knownCause struct {
	kind       load.LossKind
	connection string
	stage      Stage
	text       string // in the error
	cut        bool   // a worker was killed at that moment
	cause      string
	remedy     string
}

// killedCause comes first, however few losses it explains: its other mistakes show only when it is no longer killed.
const killedCause = "the old worker was killed at the end of its stop plan, with requests in flight or connections that it had not accepted"

// knownCauses are tried in order: the first that fits a loss is its cause.
var knownCauses = []knownCause{
	{stage: Before, cause: "the service lost it before anything was reloaded: the deploy is not to blame",
		remedy: "repair the service, or lower --rate, and prove again"},
	{text: "cannot assign requested address", cause: "this client had no port left, because a closed connection occupies its port for a minute",
		remedy: "lower --rate, or widen net.ipv4.ip_local_port_range: the service is not to blame"},
	{text: "too many open files", cause: "this client had no descriptor left", remedy: "raise ulimit -n, or lower --rate: the service is not to blame"},
	{cut: true, cause: killedCause,
		remedy: "let the worker end within the timeout of [program.NAME.stop] after its signal (many servers need another signal than TERM for a graceful stop), " +
			"or raise the timeout, if requests may take that long"},
	{stage: Idle, kind: load.Status5, cause: "the service answered with an error while no reload was under way", remedy: "read the service's own log"},
	{kind: load.Refused, cause: "no process held the listening socket: the worker opens its own instead of using the inherited one, and closes it when it stops, or --url is not the address of a configured listener",
		remedy: "take the socket from LISTEN_FDS (in Go: graceful.Listener; elsewhere systemd socket activation, or {fd:NAME} in the command), and configure it under [[program.NAME.listen]]"},
	{kind: load.Closed, connection: "reused", cause: "the old worker closed idle keep-alive connections as a request arrived: a client that does not send it again has lost it", remedy: drain},
	{kind: load.Reset, connection: "reused", cause: "the old worker ended, or closed a connection, with a request in it that it had not read", remedy: drain},
	{kind: load.Closed, connection: "new", cause: "the old worker accepted the connection and then ended, or shut down, without answering the request (Go's http.Server.Shutdown drops a request that is read after it began)", remedy: drain},
	{kind: load.Reset, connection: "new", cause: "the old worker ended with open connections, or closed a listening socket of its own (SO_REUSEPORT) in which connections waited: it should use the inherited one", remedy: drain},
	{kind: load.TimedOut, stage: Starting, cause: "the connection waited for a worker: the new ones were not ready yet, and no old one accepted any more (strategy stop-first, or a worker that blocks)",
		remedy: "use the strategy all or rolling; if the old worker is too busy, raise workers"},
	{kind: load.TimedOut, cause: "the worker took the request and did not answer: it hung while it stopped, or it said ready before it could serve",
		remedy: "say READY=1 only when the worker can answer its first request ([program.NAME.ready]); answer the requests in flight before closing what they need (databases, queues)"},
	{kind: load.Status5, stage: Starting, cause: "a worker answered with an error while the new ones started: what both share (CPU, a database, a lock) was not enough for both, or a migration broke the old version",
		remedy: "use the strategy rolling so that fewer start at once; make migrations fit the old version, too"},
	{kind: load.Status5, cause: "a new worker served before it was able to, or an old one had closed what it needs to answer",
		remedy: "say READY=1 only when the worker can answer its first request; on TERM, close databases after the last answer"},
	{cause: "the answer was not one that the target gives otherwise", remedy: "read the errors above; --json lists the first 1000"},
}

// fits reports whether a loss at this stage has the cause.
func (k *knownCause) fits(l LostRequest, stage Stage) bool {
	return (k.kind == "" || k.kind == l.Kind) && (k.connection == "" || k.connection == l.Connection) && (!k.cut || l.cut) &&
		(k.stage == "" || k.stage == stage) && strings.Contains(l.Error, k.text)
}

func causeOf(l LostRequest) Cause {
	stage := l.Stage
	if l.late {
		stage = Draining
	}
	i := slices.IndexFunc(knownCauses, func(k knownCause) bool { return k.fits(l, stage) }) // the last one fits all
	k := knownCauses[i]
	return Cause{Kind: l.Kind, Connection: k.connection, Cause: k.cause, Remedy: k.remedy}
}

// tallied counts losses by their causes.
type tallied []Cause

func (t *tallied) add(l LostRequest) {
	c := causeOf(l)
	i := slices.IndexFunc(*t, func(have Cause) bool { return have.Kind == c.Kind && have.Cause == c.Cause })
	if i < 0 {
		*t, i = append(*t, c), len(*t)
	}
	(*t)[i].Lost++
}

// sorted returns the causes, beginning with the one whose remedy prevents most losses. It is never nil.
func (t tallied) sorted() []Cause {
	list := append([]Cause{}, t...)
	weight := map[string]int{}
	for _, c := range list {
		weight[c.Remedy] += c.Lost
		if c.Cause == killedCause {
			weight[c.Remedy] = math.MaxInt
		}
	}
	slices.SortStableFunc(list, func(a, b Cause) int { // those with the same remedy stay together
		return cmp.Or(cmp.Compare(weight[b.Remedy], weight[a.Remedy]), cmp.Compare(a.Remedy, b.Remedy), cmp.Compare(b.Lost, a.Lost))
	})
	return list
}

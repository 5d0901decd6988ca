package prove

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/servers"
	"example.org/supervisord/worker/ready"
)

// Cause is why requests were lost, and what to change.
type Cause struct {
	Kind       load.LossKind `json:"kind"`       // "": several
	Connection string        `json:"connection"` // new, reused; "": both
	Lost       int           `json:"lost"`
	Headline   string        `json:"headline"` // the cause in a few words
	Cause      string        `json:"cause"`
	Remedy     string        `json:"remedy"`
}

// cause explains the losses that it fits. NAME in its texts is the program's.
type cause struct {
	headline, text, remedy string
	fits                   func(l *LostRequest) bool
}

// The errors that a client reports when it cannot send any more.
const noPort, noDescriptor = "cannot assign requested address", "too many open files"

const notTheService = ": the service is not to blame"

// drain stands for the remedy for what most workers do wrong when they stop: see drainRemedy.
const drain = "DRAIN"

var (
	ownError = cause{
		headline: "the service answers with errors (5xx) without being reloaded", remedy: "read the service's own log",
		text: "the service answered with an error that no reload explains",
	}
	startingError = cause{
		headline: "the service answers with errors (5xx) while new workers start",
		text: "a worker answered with an error while the new ones started: what both share (CPU, a database, a lock) was " +
			"not enough for both, " +
			"a migration broke the old version, or a new worker accepted from a shared listener before it was ready",
		remedy: "use the strategy rolling so that fewer start at once; make migrations fit the old version, too",
	}
	stoppingError = cause{
		headline: "your worker answers with errors (5xx) while it stops",
		text:     "an old worker that had been told to stop answered with an error: it had closed what it needs to answer",
		remedy:   "on TERM, close databases and queues after the last answer",
	}
	earlyReady = cause{
		headline: "your worker says that it is ready before it can answer",
		text:     "new workers answered with errors after they had become ready",
		remedy: "let the worker become ready (READY=1, or accept) only when it can answer its first request, or probe " +
			"it: method = \"http\" in [program.NAME.ready]",
	}
	killed = cause{
		headline: "supervisord had to kill your old workers, which did not exit in time",
		text: "an old worker was killed at the end of its stop plan (TIMEOUT), with requests in flight or connections " +
			"that it had not accepted",
		remedy: "let the worker exit within the timeout of [program.NAME.stop] after its signal (many servers need " +
			"another signal than TERM for a graceful stop), " +
			"or raise the timeout, if requests may take that long",
		fits: func(l *LostRequest) bool { return l.killed && l.dropped() },
	}
)

// causes are tried in order: the first that fits a loss is its cause.
var causes = []*cause{
	{
		headline: "the service loses requests before anything is reloaded",
		text:     "the service lost it before anything was reloaded: the deploy is not to blame",
		remedy:   "repair the service, or lower --rate, and prove again",
		fits:     func(l *LostRequest) bool { return l.Stage == Before },
	},
	{
		headline: "this client ran out of ports",
		text:     "this client had no port left, because a closed connection occupies its port for a minute",
		remedy: "lower --rate, or widen net.ipv4.ip_local_port_range" +
			notTheService, fits: func(l *LostRequest) bool { return strings.Contains(l.Error, noPort) },
	},
	{
		headline: "this client ran out of descriptors", text: "this client had no descriptor left",
		remedy: "raise ulimit -n, or lower --rate" + notTheService,
		fits:   func(l *LostRequest) bool { return strings.Contains(l.Error, noDescriptor) },
	},
	&killed,
	{
		headline: "your workers die under load",
		text:     "a worker died without having been told to stop, with requests in flight",
		remedy:   "read its last lines: `supervisord logs NAME`", fits: func(l *LostRequest) bool {
			return l.died &&
				l.dropped()
		},
	},
	{
		headline: "nothing listens at times: your worker does not use supervisord's socket",
		text: "no process held the listening socket: the worker opens one of its own, and closes it when it stops, " +
			"or --url is not the address of a configured listener",
		remedy: "write the address that the worker opens as [[program.NAME.listen]], with bind = \"on\" unless " +
			"supervisord runs as root: then it gets " +
			"supervisord's socket in place of its own",
		fits: func(l *LostRequest) bool { return l.Kind == load.Refused },
	},
	{
		headline: "the service closes connections that are in use, without being reloaded",
		remedy:   "read the service's own log, and its limits on connections",
		text:     "the service closed a connection, or an answer broke off, while no reload was under way",
		fits:     func(l *LostRequest) bool { return l.alone && l.dropped() },
	},
	{
		headline: "your worker closes idle connections on TERM while clients still use them", remedy: drain,
		text: "the old worker closed idle keep-alive connections as a request arrived: a client that does not send it " +
			"again has lost it",
		fits: func(l *LostRequest) bool { return l.idle && l.dropped() },
	},
	{
		headline: "your worker exits on TERM without finishing its requests", remedy: drain,
		text: "the old worker closed connections with requests in them: it ended without answering, or dropped what it " +
			"read after it had begun to stop " +
			"(as Go's http.Server.Shutdown does)",
		fits: (*LostRequest).dropped,
	},
	{
		headline: "clients waited too long for a worker",
		text: "the connection waited for a worker: the new ones were not ready yet, and no old one accepted any more " +
			"(strategy stop-first, or a worker that blocks)",
		remedy: "use the strategy all or rolling; if the old worker is too busy, raise workers",
		fits:   func(l *LostRequest) bool { return l.Kind == load.TimedOut && l.Stage == Starting },
	},
	{
		headline: "your worker takes requests that it does not answer",
		text: "the worker took the request and did not answer: it hung while it stopped, or it said ready before it " +
			"could serve",
		remedy: "say READY=1 only when the worker can answer its first request ([program.NAME.ready]); answer the " +
			"requests in flight before closing what " +
			"they need (databases, queues)",
		fits: func(l *LostRequest) bool { return l.Kind == load.TimedOut },
	},
	{
		headline: "the service gives another answer than before",
		text:     "the answer was not one that the target gives otherwise",
		remedy:   "read the errors above; --json lists the first 1000", fits: func(*LostRequest) bool { return true },
	},
}

// dropped reports whether the connection was closed under the request.
func (l *LostRequest) dropped() bool { return l.Kind == load.Reset || l.Kind == load.Closed }

// tallied counts losses by their causes.
type tallied []Cause

func (t *tallied) add(l *LostRequest, known *cause) {
	i := slices.IndexFunc(*t, func(have Cause) bool { return have.Headline == known.headline })
	if i < 0 {
		*t, i = append(*t, Cause{Kind: l.Kind, Connection: l.Connection, Headline: known.headline, Cause: known.text,
			Remedy: known.remedy}), len(*t)
	}
	c := &(*t)[i]
	c.Lost++
	if c.Kind != l.Kind {
		c.Kind = ""
	}
	if c.Connection != l.Connection {
		c.Connection = ""
	}
}

// sorted returns the causes, beginning with the one whose remedy prevents most losses. Workers that were killed come
// first, however few losses that explains: their other mistakes show only when they are no longer killed. It is never
// nil.
func (t tallied) sorted() []Cause {
	list := append([]Cause{}, t...)
	weight := map[string]int{}
	for _, c := range list {
		weight[c.Remedy] += c.Lost
		if c.Headline == killed.headline {
			weight[c.Remedy] = math.MaxInt
		}
	}
	slices.SortStableFunc(list, func(a, b Cause) int { // those with the same remedy stay together
		return cmp.Or(cmp.Compare(weight[b.Remedy], weight[a.Remedy]), cmp.Compare(a.Remedy, b.Remedy),
			cmp.Compare(b.Lost, a.Lost))
	})
	return list
}

// concern fills in what a cause and its remedy say about the program.
func concern(c *Cause, p *config.Program) {
	if c.Remedy == drain {
		c.Remedy = drainRemedy(p)
	}
	fill := strings.NewReplacer("NAME", p.Name, "TIMEOUT", stopTime(p).Round(time.Millisecond).String())
	c.Cause, c.Remedy = fill.Replace(c.Cause), fill.Replace(c.Remedy)
}

// drainRemedy is what to change in a worker that drops requests on TERM, or in the program.
func drainRemedy(p *config.Program) string {
	text := "on TERM, let the worker stop accepting, answer the requests in flight and those that still arrive with " +
		"\"Connection: close\", " +
		"give idle connections a moment for a last request, and only then exit. "
	if _, known := servers.Recognize(p.Command); !known {
		text += "For Go, worker/graceful does all of this (http.Server.Shutdown alone does not); elsewhere use the " +
			"server's graceful stop with a " +
			"keep-alive or drain time above zero, and if it needs another signal than TERM, set that in [program.NAME.stop]. "
	}
	if !steered(p) {
		return text + "Where the worker cannot do that, let TERM wait: handover = \"steer\" on the listener keeps new " +
			"connections away from the old worker"
	}
	return text + "Where the worker cannot do that, let TERM wait longer, in [program.NAME.drain]: timeout gives it " +
		"time to finish, " +
		"and silence gives clients time to close idle connections"
}

// KnownServer is what internal/servers, and docs/servers.md, know about the server that the program runs.
type KnownServer struct {
	Name   string `json:"name"`
	Page   string `json:"page"`
	Remedy string `json:"remedy"` // what it needs so that no request is lost; "": nothing more
}

// serverOf recognizes the server of a program; nil: it is not known.
func serverOf(p *config.Program) *KnownServer {
	server, known := servers.Recognize(p.Command)
	if !known {
		return nil
	}
	var steps []string
	if p.Ready.Method == ready.Delay {
		steps = append(steps, fmt.Sprintf("write ready.method = %q in [program.%s]", server.Ready, p.Name))
	}
	if server.Signal != "" && server.Signal != stopSignal(p) {
		steps = append(steps, fmt.Sprintf("write stop.signal = %q in [program.%s]", server.Signal, p.Name))
	}
	if len(p.Listen) == 0 { // it opens a port that two generations cannot open
		steps = append(steps, fmt.Sprintf(
			"write the address that it opens as listen in [program.%s], with bind = \"on\" unless supervisord runs as root",
			p.Name))
	}
	if server.Advice != "" {
		steps = append(steps, server.Advice)
	}
	return &KnownServer{server.Name, server.Page, strings.Join(steps, "; ")}
}

// stopSignal is the first signal that a worker gets whose successor is ready: "TERM".
func stopSignal(p *config.Program) string {
	signal := p.Stop.ReloadSignal
	if signal == 0 && len(p.Stop.Steps) > 0 {
		signal = p.Stop.Steps[0].Signal
	}
	return strings.TrimPrefix(unix.SignalName(signal), "SIG")
}

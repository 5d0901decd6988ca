// Package prove finds out whether a deploy costs requests: it puts load on a program's own listener, reloads supervisord again
// and again, and says what was lost, when and why.
//
// The pieces, by file: a target is what is hit (target.go); the client (client.go, bare.go) talks to it and never retries; the
// load (load.go) is vegeta's, one attacker with a new connection per request and one with connections that it keeps; the master
// is the supervisord that is reloaded, a child (child.go) or one that runs already (running.go); what it does arrives as events,
// from its log (log.go) or from /proc (family.go), and becomes a history of reloads (history.go). A Verdict (verdict.go) is
// drawn from the samples and the history, with causes and remedies (causes.go), as text (text.go), JSON, or a picture (plot.go).
//
// # A client with a network before it
//
// On loopback a client learns within microseconds that a worker closed a connection, and its request follows the connect as
// fast. Clients elsewhere are one round trip behind: a request crosses the closing on its way, or reaches a connection that was
// accepted long before. So both clients act as if they were Options.RoundTrip away. The one with new connections waits that long
// between connect and request (which is no part of the latency). The one with kept connections counts a request as lost when the
// worker had closed the idle connection less than that before: the client could not have known. A connection that was
// closed earlier is replaced without a word, as every client does.
package prove

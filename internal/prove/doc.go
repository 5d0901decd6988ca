// Package prove finds out whether a deploy loses requests: it puts load on a program's own listener, reloads supervisord again
// and again, and reports what was lost, when and why.
//
// The parts, by file: a target receives the load (target.go), which package internal/lab/load sends; supervised.go starts
// supervisord or finds the one that runs; its control socket tells what becomes of each reload, and history.go keeps that. The
// Findings (findings.go) combine the requests and the history, with causes and remedies (causes.go), as text (text.go), JSON, or
// a picture (plot.go).
package prove

// Package tests holds no code but tests. They drive the supervisord that was built, from outside: by its command line, its
// configuration, signals, sockets and files, with real workers under real load. Each test is one behaviour and is named for
// it, so that the list of tests is the specification:
//
//	go test ./tests -list .
//
// The files follow what a user sees, in this order: commandline, pidfile, signals, worker (what one gets), ready, trial,
// strategy, stop, restart, successor, configuration, unixsocket, watch, privileges, container, service (under load), resources,
// languages, survival (of the supervisor's own end), upgrade, scripts, start_server, reference (its own suite), switch (from it to
// this). What broke under attack is in package attack. The harness is package example.org/supervisord/internal/lab.
package tests

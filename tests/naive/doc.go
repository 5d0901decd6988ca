// Package naive tests what becomes of requests when a worker does not stop politely: examples/measure/naive, a Go
// server that calls http.Server.Shutdown on TERM and nothing else, under reloads, deaths of the master and upgrades.
// tests/servers does the same with servers that others wrote.
//
//	go test -v ./tests/naive                  3,000 to 20,000 requests for each storm
//	go test -v ./tests/naive -long            all that docs/servers.md quotes
//	go test -v ./tests/naive -handover share  with one socket for all generations: reports the losses and does not fail
package naive

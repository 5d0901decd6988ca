// Package tests tests the built supervisord from outside: by its command line, configuration, signals, sockets and
// files, with real workers under real load. Each test is one behaviour and is named for it, so the list of tests is the
// specification:
//
//	go test ./tests -list .
//
// What is "this configuration, these commands, that output" is a story in script/*.txtar, which TestScript runs:
// script/README.md. Each file in Go covers one thing that a user sees and that needs load, the kernel or the time
// between two packets: service (deploys under load), upgrade, silence, draining, resources; or the source
// itself: readme, repository, scripts, commandline. Package attack keeps what broke under attack. The harness is
// package example.org/supervisord/internal/lab.
package tests

// Package tests tests the built supervisord from outside: by its command line, configuration, signals, sockets and
// files, with real workers under real load. Each test is one behaviour and is named for it, so the list of tests is the
// specification:
//
//	go test ./tests -list .
//
// What is "this configuration, these commands, that output" is a story in script/*.txtar, which TestScript runs:
// script/README.md. Each file in Go covers one thing that a user sees and that needs load, the kernel or a worker in
// another language. Where to look: service (deploys under load), worker (what a worker gets), adoption and orphans
// (supervisord was killed), upgrade, start_server_migration, reference (the suite of the original). Package attack
// keeps what broke under attack. The harness is package example.org/supervisord/internal/lab.
package tests

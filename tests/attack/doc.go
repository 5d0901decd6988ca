// Package attack keeps what broke under attack, as tests on the built binary. Each test is one attack: by a worker, by
// a client of the control socket, by another local user, or by the machine itself (a full disk, a clock that steps
// back). A test here failed when the attack was found, and holds since. Attacks that need no more than commands and
// their answers are stories in tests/script.
//
// See package example.org/supervisord/internal/lab for the harness.
package attack

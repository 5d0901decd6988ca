// Package systemd tests supervisord under a real systemd, that of Debian 12 (252) and Debian 13 (257), which the script
// lab boots in namespaces. Run `go test ./tests/systemd` as root; on a machine without the requirements the tests are
// skipped with the reason.
package systemd

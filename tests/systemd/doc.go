// Package systemd holds the tests of supervisord under a real systemd, of Debian 12 (252) and Debian 13 (257), each
// booted in namespaces by the script beside it. Run as root, with `go test ./tests/systemd`; elsewhere they are skipped
// and say why.
package systemd

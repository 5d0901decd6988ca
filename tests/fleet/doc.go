// Package fleet tests examples/fleet/ansible: ansible-playbook rolls releases over hosts that are under load.
//
//	go test -v ./tests/fleet          three hosts
//	go test -v ./tests/fleet -long    twelve hosts, every way to fail, and the time of 100 hosts
//	go test ./tests/fleet -write      writes docs/fleet-roll.txt: a roll that fails on the fifth of twelve hosts
//
// A host (host_test.go, and the script host) is an sshd and a supervisord in user, mount and PID namespaces of its own,
// with a root directory, a loopback address and a user "deploy" of its own. Nothing in it is privileged. ansible-core
// and sshd are in a cache that scripts/test fills; without them the tests are skipped.
package fleet

// Package record carries a supervisor over its own end: the record of everything that it knows, the descriptors that
// go with it, and the processes of a supervisor that left nothing else.
//
// A supervisor is handed over in four ways, and Read reads them all:
//
//	socket activation             systemd's LISTEN_FDS: sockets, and nothing else
//	upgrade in place              Execute: the list of descriptors is in the record
//	death under systemd           LISTEN_FDS: what a Store has put into the file-descriptor store
//	death elsewhere               FindOrphans: sockets out of the workers that still run
//
// The record has the shape of the state, and is written down as a log (log.go). What a step has changed is found by
// comparing values with those that were written last.
//
// Two rules keep every worker through a death at any moment. What systemd has is known from one ledger, which counts
// what systemd's socket has taken and nothing else. And the record names every process as soon as there is one, but
// the next supervisor believes only in processes whose descriptors came with it: so the record can be ahead of the
// store, and never behind it.
package record

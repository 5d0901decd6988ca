// Package output takes what workers write to stdout and stderr: the pump that reads the pipe, the log files and their
// rotation, and the last lines in memory. No writer ever waits for a disk: lines that a disk does not take in time are
// dropped and counted.
//
//	worker ─► pipe ─► Pump ─┬─► LogFile ─► Spool ─► fileSink ─► file
//	                        └─► Log ─┬─► rings in memory ─► LogReader
//	                                 └─► LogFile ─► …
//
// The pipe's read end belongs to the Pump. The file belongs to the fileSink, which only the goroutine of the Spool
// uses; on a file system that may hang when a file is closed, the goroutine has a thread with its own table of
// descriptors, so that no fork copies the file (package foreign). A LogFile belongs to the generation that opened it,
// or to a Log, which all generations of a program share. Nothing to the left of the Spool waits.
package output

// Destination says where a stream of a worker goes.
type Destination struct {
	Kind Kind
	File *LogFile // for ToFile
}

// Kind is the kind of a Destination.
type Kind string

// The kinds of destination.
const (
	Inherit Kind = "inherit" // supervisord's own stream: under systemd the journal sees the worker's PID
	Null    Kind = "null"
	// through a pipe that supervisord reads, so that the file can be reopened and the last lines are known
	ToFile  Kind = "file"
	Capture Kind = "capture" // through such a pipe too, to a Log
)

// The names of the streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

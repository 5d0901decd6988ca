// Package worker starts, watches, signals and adopts worker processes: the master's end of a worker's life.
//
// A worker is started in two steps. The master forks its own binary again as a shim (RunShim), already in its own
// process group and with the sockets at fd 3 and up; the shim puts everything in order that cannot be done from
// outside (signal dispositions and mask, limits, user, capabilities, directory, LISTEN_PID) and then executes the
// command. Which step failed, and why, comes back over a pipe that the exec closes.
//
// All waiting is in one place. One goroutine reaps every child of the process, known or not, and kills what is left
// of a worker's process group while the PID is still pinned by the zombie. One goroutine reads what workers say. Each
// worker has one goroutine more, which posts its events; none of them occupies a thread or a timer.
//
// It needs Linux 5.9 or newer (close_range, pidfd, waitid) with /proc mounted. No other code in the process may wait
// for children or use os/exec: a status that this package reaps is gone for everybody else.
package worker

// Package worker starts, watches, signals and adopts worker processes: supervisord's end of a worker's life. Package
// worker/spawn turns a process into the command, worker/ready determines readiness, and worker/output takes the output.
//
// One goroutine reaps every child of the process, known or not, and kills what is left of a crashed worker's process
// group while the zombie still pins the PID. What is left of a worker that was told to stop goes through the rest of
// the stop plan: see rest. One goroutine waits for what workers say. Each worker has one more goroutine, which posts
// its events. None of them occupies a thread or a timer.
//
// # Order of the locks
//
// A goroutine takes them from top to bottom, and may leave some out:
//
//	Launcher.spawning  one worker at a time opens what it needs and forks
//	Launcher.gate      held for reading during a fork, and while something is reaped or taken from a pipe or socket;
//	                   Freeze locks it
//	Launcher.mu        who is a child; held over fork and registration
//	Worker.mu          one worker
//	mailbag.mu, Poller, and those of other packages (Pump, Groups, Directory, foreign.Line, Log), which call nothing here
//
// Launcher.reaping is taken alone. What a worker could make slow (closing what it sent, reading a pipe whose lock it
// can hold) happens on the thread of Worker.aside, without Worker.mu. The pumps are the exception: they hold the gate,
// because what they have read must be in the State, and a stuck one makes Freeze fail, which names the worker.
//
// The package needs Linux 5.10 (close_range, pidfd, waitid) on amd64 or arm64, with /proc mounted. No other code in the
// process may wait for children or use os/exec: a status that this package reaps is lost to all other code.
package worker

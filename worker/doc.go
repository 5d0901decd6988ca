// Package worker starts, watches, signals and adopts worker processes: supervisord's end of a worker's life. Package
// worker/spawn turns a process into the command, worker/ready determines readiness, and worker/output takes the output.
//
// One goroutine reaps every child of the process, known or not, and kills what is left of a crashed worker's process
// group while the zombie still pins the PID. What is left of a worker that was told to stop goes through the rest of
// the stop plan: see rest. One goroutine waits for what workers say. Each worker has one more goroutine, which posts
// its events. None of them occupies a thread or a timer.
//
// # Goroutines
//
//	reapAll      waits for SIGCHLD, reaps every child, tells its worker
//	poller       waits for every descriptor on which workers speak (package epoll), and calls their readers
//	watchStrays  looks for what workers have left behind, a look at a time for each process on a thread of its own
//	live         one for each worker: forks, and then posts its events; the only one that calls post
//	aside        one for each worker, as long as there is something to do: what the worker could make slow, on a thread
//	             that takes no signals (foreign.Line)
//	Pump.Run     one for each stream that is read
//	findOut      one for each worker whose readiness is asked for, until it is ready; a probe's command is a worker, too
//
// The Launcher waits for all of them in Close. What hangs in the kernel forever, such as a read of memory that never
// comes, keeps its thread and nobody else.
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
//	Launcher.reaping   held while a child is reaped, and where none may be: while the list of our children is read
//	mailbag.mu, Poller, and those of other packages (Pump, Groups, Directory, foreign.Line, Log), which call nothing here
//
// What a worker could make slow (closing what it sent, reading a pipe whose lock it can hold) happens on the thread of
// Worker.aside, without Worker.mu. The pumps are the exception: they hold the gate, because what they have read must be
// in the State, and a stuck one makes Freeze fail, which names the worker.
//
// The package needs Linux 5.10 (close_range, pidfd, waitid) on amd64 or arm64, with /proc mounted. No other code in the
// process may wait for children or use os/exec: a status that this package reaps is lost to all other code.
package worker

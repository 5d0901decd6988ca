package worker

import "example.org/supervisord/worker/output"

// newPump reads from fd. A stream that is read although it is inherited is the stderr of a command of Run, or that of a worker
// that another image of the supervisor started with another configuration.
func (w *Worker) newPump(fd int, o output.Destination, stream string) *output.Pump {
	var write func([]byte)
	switch {
	case o.Kind == output.Capture && w.spec.Captured != nil:
		write = func(b []byte) { w.spec.Captured(stream, w.process.pid, b) } // it was forked before anything is read
	case o.Kind == output.ToFile && o.File != nil:
		write = o.File.Put
	case o.Kind == output.Null, o.Kind == output.Capture:
		write = func([]byte) {}
	case stream == output.Stdout:
		write = func(b []byte) { w.launcher.stdout.Write(b) }
	default:
		write = func(b []byte) { w.launcher.stderr.Write(b) }
	}
	return output.NewPump(fd, stream, write, &w.launcher.gate)
}

// tail returns the last lines of the worker's stderr.
func (w *Worker) tail() []string {
	for _, p := range w.pumps {
		if p.Stream() == output.Stderr {
			return p.Tail()
		}
	}
	return nil
}

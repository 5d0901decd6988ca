package lab

import (
	"os"
	"syscall"
)

// Gate makes a FIFO at which workers with the argument gate=PATH wait.
func (m *Supervisord) Gate(name string) string {
	m.T.Helper()
	Must(m.T, syscall.Mkfifo(m.Path(name), 0o666))
	Must(m.T, os.Chmod(m.Path(name), 0o666))
	return m.Path(name)
}

// Open opens a gate for the workers that wait there, or for the next one that comes.
func (m *Supervisord) Open(gate string) {
	m.T.Helper()
	m.Until("a worker waits at the gate", func() bool {
		f, err := os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			f.Close()
		}
		return err == nil
	})
}

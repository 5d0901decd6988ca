package lab

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Deployed is a program whose command is the file "server", of which Release makes versions.
const Deployed = `
[program.web]
command = ["{dir}/server"]
[[program.web.listen]]
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
[program.web.restart]
backoff = { min = "10ms" }
`

// Release puts a version of the example worker in place, as a new file: the version is how many bytes are added to it. Another process
// writes the file: see Replace.
func (m *Supervisord) Release(version int) {
	m.T.Helper()
	const add = "cp $2 $1.new && head -c $3 /dev/zero >> $1.new && mv $1.new $1"
	Must(m.T, exec.Command("sh", "-ec", add, "sh", m.Path("server"), Built.Hello, fmt.Sprint(version)).Run())
}

// Runs returns the version of the worker that answers, and its answer.
func (m *Supervisord) Runs() (version, pid int, answer string) {
	m.T.Helper()
	answer = Ask(m.T, m.Address(), "/")
	_, rest, _ := strings.Cut(answer, "pid=")
	_, err := fmt.Sscan(rest, &pid)
	Must(m.T, err)
	return m.Version(pid), pid, answer
}

// Version returns the version that a process executes.
func (m *Supervisord) Version(pid int) int {
	m.T.Helper()
	file, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	Must(m.T, err)
	return int(file.Size() - Size(Built.Hello))
}

// Crash kills the only worker, and checks which version answers then, and of which generation.
func (m *Supervisord) Crash(version, generation int) {
	m.T.Helper()
	_, pid, _ := m.Runs()
	last := m.Last()
	Must(m.T, syscall.Kill(pid, syscall.SIGKILL))
	m.Await(After(last), Says("worker is ready"))
	if got, _, answer := m.Runs(); got != version || !strings.Contains(answer, fmt.Sprintf("generation=%d", generation)) {
		m.T.Errorf("version %d answers: %s; want version %d", got, answer, version)
	}
}

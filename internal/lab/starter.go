package lab

import (
	"strconv"
	"strings"
	"testing"
)

// PrepareStarter prepares a supervisord that runs as start_server with its own runtime directory.
func PrepareStarter(t testing.TB) *Supervisord {
	t.Helper()
	m := Prepare(t)
	m.Env = append(m.Env, "RUNTIME_DIRECTORY="+m.Path("run"))
	return m
}

// StartServer starts supervisord as start_server with these words, after Fill.
func (m *Supervisord) StartServer(words ...string) {
	m.T.Helper()
	m.Launch(m.starterWords(words)...)
}

// RunServer is Run for start_server.
func (m *Supervisord) RunServer(words ...string) (out string, code int) {
	m.T.Helper()
	return m.Run(m.starterWords(words)...)
}

func (m *Supervisord) starterWords(words []string) []string {
	args := []string{"start_server"}
	for _, w := range words {
		if w == "{worker}" {
			args = append(args, Built.Self, WorkerWord)
			continue
		}
		args = append(args, m.Fill(w))
	}
	return args
}

// Started waits for the nth worker and returns its PID.
func (m *Supervisord) Started(n int) int {
	m.T.Helper()
	l := m.AwaitN(n, Contains("starting new worker "))[n-1]
	pid, err := strconv.Atoi(strings.TrimPrefix(l.Text, "starting new worker "))
	Must(m.T, err)
	return pid
}

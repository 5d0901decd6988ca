package worker

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/output"
)

// complaints collects the reported errors of log files.
type complaints struct {
	mu   sync.Mutex
	said []string
}

func (c *complaints) add(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, what+": "+err.Error())
}

func (c *complaints) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.said...)
}

// testLog opens a log file until the end of the test.
type testLog struct {
	*output.LogFile
	path   string
	errors *output.LogErrors
}

func logFile(t *testing.T) *testLog {
	t.Helper()
	return openLog(t, filepath.Join(t.TempDir(), "log"), new(complaints))
}

func openLog(t *testing.T, path string, c *complaints) *testLog {
	t.Helper()
	errors := output.NewLogErrors(c.add)
	file := must.Get(output.OpenLogFile(t.Context(), output.LogFileSpec{Path: path}, errors))(t)
	t.Cleanup(func() { file.Close(context.Background()) })
	return &testLog{file, path, errors}
}

// written returns the content of the file after all writes.
func (l *testLog) written(t *testing.T) string {
	t.Helper()
	must.Do(t, l.Flush(t.Context()))
	data := must.Get(os.ReadFile(l.path))(t)
	return string(data)
}

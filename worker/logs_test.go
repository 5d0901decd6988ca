package worker

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/output"
)

// testLog opens a log file until the end of the test.
type testLog struct {
	*output.LogFile
	path   string
	errors *output.LogErrors
}

func logFile(t *testing.T) *testLog { t.Helper(); return openLog(t, filepath.Join(t.TempDir(), "log")) }

func openLog(t *testing.T, path string) *testLog {
	t.Helper()
	errors := output.NewLogErrors(func(string, error) {})
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

package daemon

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// written returns what a core of a format writes of an entry.
func written(format string, level zapcore.Level, message string, fields ...zap.Field) string {
	var b strings.Builder
	zap.New(logCore(format, zapcore.DebugLevel, zapcore.AddSync(&b))).With(zap.String("program", "web")).Check(level, message).Write(fields...)
	return b.String()
}

func TestConsoleLogIsForPeople(t *testing.T) {
	took := 26042312 * time.Nanosecond
	for want, got := range map[string]string{
		"web[1] worker 3 is ready after 26ms (pid 32015)  slot=0\n": written("console", zap.InfoLevel, "worker is ready",
			zap.String("event", "worker_ready"), zap.Int("generation", 1), zap.Int("worker", 3), zap.Int("slot", 0), zap.Int("pid", 32015), zap.Duration("took", took)),
		"WARN web[2] worker 4 died (pid 7): exited with status 1  slot=1  stderr=\"[no database]\"\n": written("console", zap.WarnLevel, "worker died",
			zap.Int("generation", 2), zap.Int("worker", 4), zap.Int("slot", 1), zap.Int("pid", 7), zap.String("reason", "exited with status 1"), zap.Strings("stderr", []string{"no database"})),
		"ERROR web cannot open  error=\"no space\"\n": written("console", zap.ErrorLevel, "cannot open", zap.Error(errors.New("no space"))),
	} {
		if _, line, _ := strings.Cut(got, " "); line != want {
			t.Errorf("got %q, want %q", line, want)
		}
	}
}

func TestJSONLogHasDurationsAsNumbers(t *testing.T) {
	var got map[string]any
	if err := json.Unmarshal([]byte(written("json", zap.InfoLevel, "x", zap.Duration("took", 1500042312*time.Nanosecond))), &got); err != nil {
		t.Fatal(err)
	}
	if got["took_ms"] != 1500.042 || got["took"] != nil || got["program"] != "web" {
		t.Errorf("the line is %v", got)
	}
}

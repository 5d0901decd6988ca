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
	zap.New(logCore(format, zapcore.DebugLevel, zapcore.AddSync(&b))).With(zap.String("program", "web")).Check(level,
		message).Write(fields...)
	return b.String()
}

// report is the field of a report with this sentence.
type report string

func (report) String() string { return "worker_died" }
func (r report) Text() string { return string(r) }

func TestConsoleLogIsForPeople(t *testing.T) {
	took := 26042312 * time.Nanosecond
	for want, got := range map[string]string{
		"WARN web: worker 4 has died  stderr=\"[no database]\"\n": written("console", zap.WarnLevel, "worker has died",
			zap.Stringer("event", report("worker 4 has died")), zap.Int("worker", 4), zap.Int("pid", 7), zap.Strings("stderr",
				[]string{"no database"})),
		"WARN web[2] worker is not ready yet after 26ms (pid 7): no answer  slot=1\n": written("console", zap.WarnLevel,
			"worker is not ready yet",
			zap.Int("generation", 2), zap.Int("slot", 1), zap.Int("pid", 7), zap.String("reason",
				"no answer"), zap.Duration("took", took)),
		"ERROR web cannot open  error=\"no space\"\n": written("console", zap.ErrorLevel, "cannot open",
			zap.Error(errors.New("no space"))),
	} {
		if _, line, _ := strings.Cut(got, " "); line != want {
			t.Errorf("got %q, want %q", line, want)
		}
	}
}

func TestJSONLogHasDurationsAsNumbers(t *testing.T) {
	var got map[string]any
	if err := json.Unmarshal([]byte(written("json", zap.InfoLevel, "x", zap.Duration("took", 1500042312*time.Nanosecond))),
		&got); err != nil {
		t.Fatal(err)
	}
	if got["took_ms"] != 1500.042 || got["took"] != nil || got["program"] != "web" {
		t.Errorf("the line is %v", got)
	}
}

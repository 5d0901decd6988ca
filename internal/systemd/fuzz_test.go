package systemd

import (
	"regexp"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// What a worker says reaches the journal as it is, in its own field, and cannot make up another field.
func FuzzJournalEntry(f *testing.F) {
	f.Add("worker has ended", "tail", "a\nPRIORITY=0\n")
	f.Add("a\nb", "x=y\n", "\x00\xff")
	f.Add("", "errorVerbose", "\n\x08\x00\x00\x00\x00\x00\x00\x00")
	f.Fuzz(func(t *testing.T, message, key, value string) {
		got := parse(t, string(journalEntry(zapcore.Entry{Message: message, Level: zap.WarnLevel, Time: time.Now()},
			[]zapcore.Field{zap.String(key, value)})))
		own := fieldName(key)
		if len(got) != 4 || got["PRIORITY"] != "4" || got["SYSLOG_IDENTIFIER"] != identifier || got[own] != value {
			t.Errorf("%q: %q", own, got)
		}
		if !regexp.MustCompile(`^SUPERVISORD_[A-Z0-9_]*$`).MatchString(own) || len(own) > maxFieldName {
			t.Errorf("the field %q", own)
		}
	})
}

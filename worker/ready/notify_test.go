package ready

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMeaninglessMessagesAreIgnored(t *testing.T) {
	for _, text := range []string{"READY=1\x00", "READY=1\nSTATUS=\xff", strings.Repeat("x", maxMessage+1)} {
		if m := parseNotification([]byte(text)); m != (Notification{}) {
			t.Errorf("%.20q gave %+v", text, m)
		}
	}
	for _, text := range []string{"READY=0", "READY", "XREADY=1", "EXTEND_TIMEOUT_USEC=-1",
		"EXTEND_TIMEOUT_USEC=99999999999999999999", "ERRNO=x", "WATCHDOG=0", "X_SUPERVISORD_DRAINS=0", "X_SUPERVISORD_DRAINS",
		""} {
		if m := parseNotification([]byte(text)); m != (Notification{}) {
			t.Errorf("%q gave %+v", text, m)
		}
	}
}

func FuzzParseNotification(f *testing.F) {
	for _, s := range []string{"READY=1", "STOPPING=1\nSTATUS=a", "EXTEND_TIMEOUT_USEC=1\nERRNO=3", "WATCHDOG=trigger",
		"\x00", "BARRIER=1", "=\n=="} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := parseNotification(data)
		if !utf8.ValidString(m.Status) || strings.ContainsAny(m.Status, "\n\x00") || m.Extend < 0 {
			t.Errorf("%+v", m)
		}
		if m.Ready && !strings.Contains("\n"+string(data)+"\n", "\nREADY=1\n") {
			t.Error("ready without READY=1")
		}
	})
}

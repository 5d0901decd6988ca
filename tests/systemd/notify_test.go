package systemd_test

import (
	"strconv"
	"strings"
	"testing"
)

// The names of 1023 descriptors with 127 bytes, and of the two of the record, just fit into LISTEN_FDNAMES. With one
// more systemd could not start the service again.
const (
	asked      = "1024"
	nameLength = "127"
	stored     = "1025"
	limit      = "1030"
)

func TestFullStoreSurvivesTheDeathOfItsService(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Install("tests/systemd/probe", "/usr/local/bin/probe")
		l.Service("probe.service", "[Service]\nType=notify\nExecStart=/usr/local/bin/probe store "+asked+" "+nameLength+
			"\nFileDescriptorStoreMax="+limit+"\nRestart=always\nRestartSec=100ms\nTimeoutStartSec=60\nLimitNOFILE=524288\n")
		l.Run("systemctl", "start", "probe")
		t.Log("first start:", l.Property("probe", "StatusText"))
		if got := l.Property("probe", "NFileDescriptorStore"); got != stored {
			t.Fatalf("the store has %s descriptors, want %s", got, stored)
		}
		l.Run("systemctl", "kill", "-s", "KILL", "probe")
		l.Until("the service has been started again", func() bool {
			return l.Property("probe", "NRestarts") == "1" && l.Property("probe", "ActiveState") == "active"
		})
		status := l.Property("probe", "StatusText")
		if t.Log("second start:", status); !strings.HasPrefix(status, "got "+stored) {
			t.Errorf("the second start reports %q", status)
		}
	})
}

func TestJournalEntriesHaveFieldsAndBelongToTheUnit(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Install("tests/systemd/probe", "/usr/local/bin/probe")
		l.Service("probe.service", "[Service]\nType=oneshot\nExecStart=/usr/local/bin/probe log 100\n")
		l.Run("systemctl", "start", "probe")
		all := l.Journal("SUPERVISORD_PROGRAM=web")
		if len(all) < 50 {
			t.Fatalf("the journal has %d entries of 100", len(all))
		}
		next := 0
		for _, entry := range all { // a journal that is busy loses some, which the entry that follows tells
			number, _ := strconv.Atoi(entry["SUPERVISORD_NUMBER"])
			lost, _ := strconv.Atoi(entry["SUPERVISORD_LOST"])
			if number != next+lost {
				t.Fatalf("%q comes where number %d was", entry, next)
			}
			next = number + 1
		}
		for i, entry := range all {
			if entry["PRIORITY"] != "4" || entry["SYSLOG_IDENTIFIER"] != "supervisord" ||
				!strings.HasPrefix(entry["MESSAGE"], "probed number=") {
				t.Fatalf("entry %d is %q", i, entry)
			}
		}
		if own := l.Journal("-u", "probe", "SUPERVISORD_PROGRAM=web"); len(own) != len(all) {
			t.Errorf("journalctl -u shows %d of the %d", len(own), len(all))
		}
	})
}

package systemd_test

import (
	"encoding/json"
	"strings"
)

// Entry is one journal entry with its fields as text. Fields that journalctl prints as byte lists are decoded; of a
// repeated field the last value counts.
type Entry map[string]string

// Journal returns the matching entries, oldest first: "-u", "supervisord" or "SUPERVISORD_PROGRAM=web". It includes
// everything logged before the call.
func (l *Lab) Journal(match ...string) []Entry {
	l.t.Helper()
	l.Run("journalctl", "--sync")
	out := l.Run(append([]string{"journalctl", "--no-pager", "--all", "-q", "-o", "json"}, match...)...)
	var entries []Entry
	for line := range strings.Lines(out) {
		var raw map[string]json.RawMessage
		must(l.t, json.Unmarshal([]byte(line), &raw))
		entry := Entry{}
		for key, value := range raw {
			entry[key] = text(value)
		}
		entries = append(entries, entry)
	}
	return entries
}

// text reads the three forms of a value: a string, a list of byte values, a list of either.
func text(raw json.RawMessage) string {
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		return plain
	}
	var numbers []int
	if json.Unmarshal(raw, &numbers) == nil {
		value := make([]byte, len(numbers))
		for i, n := range numbers {
			value[i] = byte(n)
		}
		return string(value)
	}
	var several []json.RawMessage
	if json.Unmarshal(raw, &several) == nil && len(several) > 0 {
		return text(several[len(several)-1])
	}
	return ""
}

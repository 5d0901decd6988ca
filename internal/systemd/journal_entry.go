package systemd

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap/zapcore"
)

// identifier is what the journal shows before the PID.
const identifier = "supervisord"

// maxFieldName is journald's limit; it drops a field with a longer name.
const maxFieldName = 64

// pair is one field as text, its key as the logger wrote it.
type pair struct{ key, value string }

// journalEntry writes an entry in journald's native protocol.
func journalEntry(entry zapcore.Entry, fields []zapcore.Field) []byte {
	pairs := flatten(fields)
	out := appendField(nil, "MESSAGE", sentence(entry.Message, pairs))
	out = appendField(out, "PRIORITY", strconv.Itoa(priority(entry.Level)))
	out = appendField(out, "SYSLOG_IDENTIFIER", identifier)
	if entry.LoggerName != "" {
		out = appendField(out, fieldName("logger"), entry.LoggerName)
	}
	if entry.Caller.Defined {
		out = appendField(out, "CODE_FILE", entry.Caller.File)
		out = appendField(out, "CODE_LINE", strconv.Itoa(entry.Caller.Line))
		out = appendField(out, "CODE_FUNC", entry.Caller.Function)
	}
	if entry.Stack != "" {
		out = appendField(out, fieldName("stack"), entry.Stack)
	}
	for _, p := range pairs {
		out = appendField(out, fieldName(p.key), p.value)
	}
	return out
}

// appendField writes KEY=value, or for a value of several lines the key, its length and the value.
func appendField(out []byte, name, value string) []byte {
	out = append(out, name...)
	if strings.Contains(value, "\n") {
		out = append(out, '\n')
		out = binary.LittleEndian.AppendUint64(out, uint64(len(value)))
	} else {
		out = append(out, '=')
	}
	out = append(out, value...)
	return append(out, '\n')
}

// fieldName turns "took" into SUPERVISORD_TOOK, within what journald accepts.
func fieldName(key string) string {
	name := "SUPERVISORD_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	return name[:min(len(name), maxFieldName)]
}

// sentence is the message and the fields on one line, for a person.
func sentence(message string, pairs []pair) string {
	var line strings.Builder
	line.WriteString(message)
	for _, p := range pairs {
		if p.key == "errorVerbose" { // zap's second form of an error
			continue
		}
		line.WriteByte(' ')
		line.WriteString(p.key)
		line.WriteByte('=')
		line.WriteString(quoted(p.value))
	}
	return line.String()
}

// quoted puts ambiguous values in quotes.
func quoted(value string) string {
	if value == "" || strings.ContainsFunc(value, func(r rune) bool {
		return r == '"' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}) {
		return strconv.Quote(value)
	}
	return value
}

// flatten turns zap's fields into text, in their order.
func flatten(fields []zapcore.Field) []pair {
	var pairs []pair
	var space string
	for _, field := range fields {
		if field.Type == zapcore.NamespaceType {
			space += field.Key + "."
			continue
		}
		values := zapcore.NewMapObjectEncoder()
		field.AddTo(values)
		for _, key := range slices.Sorted(maps.Keys(values.Fields)) {
			pairs = append(pairs, pair{space + key, plain(values.Fields[key])})
		}
	}
	return pairs
}

// plain writes a value as zap's map encoder leaves it.
func plain(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case []byte:
		return base64.StdEncoding.EncodeToString(value)
	case time.Time:
		return value.Format(time.RFC3339Nano)
	case map[string]any, []any:
		if raw, err := json.Marshal(value); err == nil {
			return string(raw)
		}
	}
	return fmt.Sprint(value)
}

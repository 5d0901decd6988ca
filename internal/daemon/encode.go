package daemon

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	"example.org/supervisord/internal/terminal"
)

// millis is a core for JSON that writes durations as numbers, in fields that are named for it: took becomes took_ms.
type millis struct{ zapcore.Core }

// With implements zapcore.Core.
func (m millis) With(fields []zapcore.Field) zapcore.Core {
	return millis{m.Core.With(inMillis(fields))}
}

// Check implements zapcore.Core.
func (m millis) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return checked(m, e, c)
}

// Write implements zapcore.Core.
func (m millis) Write(e zapcore.Entry, fields []zapcore.Field) error {
	return m.Core.Write(e, inMillis(fields))
}

func checked(core zapcore.Core, e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if core.Enabled(e.Level) {
		return c.AddCore(e, core)
	}
	return c
}

func inMillis(fields []zapcore.Field) []zapcore.Field {
	fields = slices.Clone(fields)
	for i, f := range fields {
		if f.Type == zapcore.DurationType {
			ms := float64(time.Duration(f.Integer).Microseconds()) / 1000
			fields[i] = zapcore.Field{Key: f.Key + "_ms", Type: zapcore.Float64Type, Integer: int64(math.Float64bits(ms))}
		}
	}
	return fields
}

// console is a core that writes lines for a person: "15:04:05 web: worker 3 of generation 1 (PID 32015) is ready after 26ms".
type console struct {
	zapcore.LevelEnabler
	out     zapcore.WriteSyncer
	paint   terminal.Palette
	context []zapcore.Field
}

// With implements zapcore.Core.
func (c console) With(fields []zapcore.Field) zapcore.Core {
	c.context = slices.Concat(c.context, fields)
	return c
}

// Check implements zapcore.Core.
func (c console) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return checked(c, e, to)
}

// Sync implements zapcore.Core.
func (c console) Sync() error { return c.out.Sync() }

// Write implements zapcore.Core.
func (c console) Write(e zapcore.Entry, fields []zapcore.Field) error {
	_, err := c.out.Write([]byte(c.line(e, slices.Concat(c.context, fields))))
	return err
}

// unsaid are fields that a person does not need.
var unsaid = []string{"event", "errorVerbose"}

func (c console) line(e zapcore.Entry, fields []zapcore.Field) string {
	values, order := texts(fields)
	take := func(key, before, after string) string {
		text, ok := values[key]
		if !ok {
			return ""
		}
		delete(values, key)
		return before + text + after
	}
	b := e.Time.Format("15:04:05 ")
	switch {
	case e.Level >= zapcore.ErrorLevel:
		b += c.paint.Bad("ERROR ")
	case e.Level == zapcore.WarnLevel:
		b += c.paint.Warn("WARN ")
	}
	if report := text(fields); report != "" {
		b += c.paint.Strong(take("program", "", ":")) + " " + report
		if tail := take("stderr", "", ""); tail != "" {
			b += "  stderr=" + quoted(tail)
		}
		return b + "\n"
	}
	if subject := take("program", "", "") + take("generation", "[", "]"); subject != "" {
		b += c.paint.Strong(subject) + " "
	}
	b += e.Message + take("took", " after ", "") + take("pid", " (pid ", ")") + take("reason", ": ", "")
	for _, key := range order {
		if text, ok := values[key]; ok && !slices.Contains(unsaid, key) {
			b += "  " + key + "=" + quoted(text)
		}
	}
	return b + "\n"
}

// text returns the sentence of a report for people; "": the fields are not those of one.
func text(fields []zapcore.Field) string {
	for _, f := range fields {
		if report, is := f.Interface.(interface{ Text() string }); is {
			return report.Text()
		}
	}
	return ""
}

// texts returns fields as text, and the order of their keys.
func texts(fields []zapcore.Field) (values map[string]string, order []string) {
	values = map[string]string{}
	for _, f := range fields {
		e := zapcore.NewMapObjectEncoder()
		f.AddTo(e)
		for key, value := range e.Fields {
			if d, is := value.(time.Duration); is {
				value = d.Round(max(time.Millisecond, d.Truncate(time.Second)/1000))
				if d < time.Millisecond {
					value = d.Round(time.Microsecond)
				}
			}
			values[key] = fmt.Sprint(value)
			order = append(order, key)
		}
	}
	return values, order
}

// quoted puts values in quotes that would be ambiguous.
func quoted(text string) string {
	if text == "" || strings.ContainsAny(text, " =\"\n\t\x1b") {
		return strconv.Quote(text)
	}
	return text
}

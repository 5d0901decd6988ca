// Package apps converts the structured configurations of pm2 (JSON, YAML) and Docker Compose (YAML).
package apps

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/source"
)

// keys says what has no equivalent.
//
//go:embed keys.txt
var keys string

// rules are the keys of a map. A key of structured has a list or a map; the others have one value.
type rules struct {
	one, structured draft.Rules
	otherwise       draft.Rule
}

const (
	notText = "it is not text: write it as such"
	unknown = "it is not known here: see the documentation of the program that reads it"
)

// each converts the items of a map.
func (r rules) each(p *draft.Block, n *source.Node) {
	for _, item := range n.Items {
		p.Pending = append(p.Pending, item.Comments...)
		s := item.Setting()
		s.Comments = nil
		one, isOne := r.one[item.Key]
		structured, isStructured := r.structured.For(item.Key)
		switch {
		case isStructured:
			p.Apply(structured, s)
		case !isOne:
			p.Apply(r.otherwise, s)
		case item.Kind == source.Null:
			p.Note("", s, "not needed: it has no value")
		case item.Kind != source.Scalar:
			p.Wrong(s, "is not a single value", "write one value")
		default:
			p.Apply(one, s)
		}
	}
}

// words returns the words of a command: a list, or text that is split as a shell does without expanding anything.
func words(p *draft.Block, s source.Setting) (list []string, ok bool) {
	switch s.Node.Kind {
	case source.Scalar:
		return p.CommandWords(s, s.Value)
	case source.List:
		for _, item := range s.Node.Items {
			if item.Kind != source.Scalar {
				p.Lacks(s, notText)
				return nil, false
			}
			list = append(list, item.Value)
		}
		return list, true
	}
	return nil, s.Node.Kind == source.Null
}

// pairs calls set for each variable of a map, or of a list of NAME=VALUE.
func pairs(p *draft.Block, s source.Setting, set func(item source.Setting, name, value string)) {
	for _, item := range s.Node.Items {
		of := item.Setting()
		name, value, ok := item.Key, item.Value, true
		if s.Node.Kind == source.List {
			name, value, ok = strings.Cut(item.Value, "=")
			of.Text = item.Value
		}
		switch {
		case item.Kind == source.Null, !ok:
			p.Note("", of, "not needed: programs inherit the environment of supervisord")
		case item.Kind != source.Scalar:
			p.Lacks(of, "a variable is text: write it as such")
		default:
			set(of, name, value)
		}
	}
}

// asNumber reads a whole number in some bounds.
func asNumber(least, most int) draft.Reader {
	return func(p *draft.Block, key string, s source.Setting) (any, bool) {
		n, ok := p.Integer(s)
		return n, ok && p.Unless(n < least || n > most, s, fmt.Sprintf("%s must be from %d to %d", key, least, most))
	}
}

// asBytes reads a size such as 300M or 1.5g, whose units are powers of 1024, as whole MiB.
func asBytes(p *draft.Block, _ string, s source.Setting) (any, bool) {
	value := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s.Value)), "b")
	scale := 1.0
	if at := strings.IndexAny(value, "kmgt"); at >= 0 && at == len(value)-1 {
		scale = math.Pow(1024, float64(strings.IndexByte("kmgt", value[at])+1))
		value = value[:at]
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(n >= 0 && n*scale < 1<<60) {
		p.Wrong(s, fmt.Sprintf("%q is not a size", s.Value), "write for example 300M")
		return nil, false
	}
	mebibytes := int64(math.Ceil(n * scale / (1 << 20)))
	return fmt.Sprintf("%dMiB", max(mebibytes, 1)), true
}

// asMilliseconds reads a duration of at least the shortest, in seconds: a number of milliseconds, or 10s.
func asMilliseconds(shortest float64) draft.Reader {
	return func(p *draft.Block, key string, s source.Setting) (any, bool) {
		n, ok := span(s.Value, 0.001)
		if !ok {
			p.Wrong(s, fmt.Sprintf("%q is not a duration", s.Value), "write a number of milliseconds, or 10s")
			return nil, false
		}
		return p.Duration(key, s, n, shortest)
	}
}

// span reads a duration in seconds such as 1m30s, 500ms, or a number of some unit.
func span(value string, bare float64) (total float64, ok bool) {
	value = strings.ReplaceAll(strings.TrimSpace(value), " ", "")
	for value != "" {
		end := len(value) - len(strings.TrimLeft(value, "0123456789."))
		n, err := strconv.ParseFloat(value[:end], 64)
		letters := len(value[end:]) - len(strings.TrimLeft(value[end:], "abcdefghijklmnopqrstuvwxyz"))
		unit, known := map[string]float64{"": bare, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600,
			"d": 86400}[value[end:end+letters]]
		if err != nil || !known {
			return 0, false
		}
		total += n * unit
		value, ok = value[end+letters:], true
	}
	return total, ok
}

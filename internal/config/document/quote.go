package document

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Quote writes a string in TOML. What is not UTF-8, which a TOML file cannot contain, becomes U+FFFD.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// TOML writes a decoded value, or a list of strings, in TOML, on one line.
func TOML(raw any) string {
	var parts []string
	switch raw := raw.(type) {
	case string:
		return Quote(raw)
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(raw)) {
			parts = append(parts, Key("", name)+" = "+TOML(raw[name]))
		}
		if len(parts) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case []string:
		for _, text := range raw {
			parts = append(parts, Quote(text))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []any, []map[string]any:
		items, _ := Value{Raw: raw}.Elements()
		for _, item := range items {
			parts = append(parts, TOML(item.Raw))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(raw)
}

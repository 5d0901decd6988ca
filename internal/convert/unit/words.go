package unit

import (
	"errors"
	"strconv"
	"strings"
)

// escape returns the character that a backslash stands for at the beginning of s, and its length in s; 0: systemd knows
// no such escape.
func escape(s string) (string, int) {
	if len(s) < 2 || s[0] != '\\' {
		return "", 0
	}
	if at := strings.IndexByte(`abfnrtv\"'s`, s[1]); at >= 0 {
		return "\a\b\f\n\r\t\v\\\"' "[at : at+1], 2
	}
	digits, base, first := 3, 8, 1
	switch s[1] {
	case 'x':
		digits, base, first = 2, 16, 2
	case 'u':
		digits, base, first = 4, 16, 2
	case 'U':
		digits, base, first = 8, 16, 2
	}
	if len(s) < first+digits {
		return "", 0
	}
	n, err := strconv.ParseUint(s[first:first+digits], base, 32)
	switch {
	case err != nil || n == 0 || n > 0x10ffff || digits == 3 && n > 255:
		return "", 0
	case digits < 4:
		return string([]byte{byte(n)}), first + digits
	}
	return string(rune(n)), first + digits
}

// split splits a value into words as systemd does, with its quotes and escapes.
func split(value string) (words []string, err error) {
	var word strings.Builder
	begun, quote := false, byte(0)
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '\\':
			text, n := escape(value[i:])
			if n == 0 {
				return nil, errors.New("an escape is unknown: " + value[i:min(len(value), i+4)])
			}
			word.WriteString(text)
			begun = true
			i += n - 1
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, begun = c, true
		case quote == 0 && strings.IndexByte(" \t\n\r", c) >= 0:
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

// seconds reads a time span such as "90", "1min 30s" or "infinity" (below 0). A number without a unit is in units of
// bare seconds.
func seconds(value string, bare float64) (total float64, ok bool) {
	value = strings.TrimSpace(value)
	if value == "infinity" {
		return -1, true
	}
	for value != "" {
		end := len(value) - len(strings.TrimLeft(value, "0123456789."))
		n, err := strconv.ParseFloat(value[:end], 64)
		if err != nil {
			return 0, false
		}
		rest := strings.TrimLeft(value[end:], " \t")
		letters := len(rest) - len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyzMµμ"))
		unit, known := bare, true
		if letters > 0 {
			unit, known = spans()[rest[:letters]], spans()[rest[:letters]] > 0
		}
		if !known {
			return 0, false
		}
		total += n * unit
		value = strings.TrimLeft(rest[letters:], " \t")
	}
	return total, true
}

// spans are the units of systemd.time(7), in seconds.
func spans() map[string]float64 {
	const minute, hour, day = 60, 3600, 86400
	return map[string]float64{
		"us": 1e-6, "usec": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "msec": 1e-3,
		"s": 1, "sec": 1, "second": 1, "seconds": 1,
		"m": minute, "min": minute, "minute": minute, "minutes": minute,
		"h": hour, "hr": hour, "hour": hour, "hours": hour,
		"d": day, "day": day, "days": day, "w": 7 * day, "week": 7 * day, "weeks": 7 * day,
		"M": 30.44 * day, "month": 30.44 * day, "months": 30.44 * day,
		"y": 365.25 * day, "year": 365.25 * day, "years": 365.25 * day,
	}
}

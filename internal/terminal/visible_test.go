package terminal

import "testing"

func TestTerminalGetsColorsAndNoOtherControlCharacters(t *testing.T) {
	for line, want := range map[string]string{
		"plain\tünïcode":                  "plain\tünïcode",
		"\x1b]52;c;cm0=\x07 clip":         "^[]52;c;cm0=^G clip",
		"\x1b[2J\rhome\b":                 "^[[2J^Mhome^H",
		"\x1b[1;31mred\x1b[0m and\x1b[K":  "\x1b[1;31mred\x1b[0m and^[[K\x1b[0m",
		"c1 \u009b31m, delete \x7f, \xff": "c1 <U+009B>31m, delete ^?, \ufffd",
		"\x9b31m is not UTF-8":            "\ufffd31m is not UTF-8",
		"\x1b[31mred":                     "\x1b[31mred\x1b[0m",
		"\u202egnp.exe":                   "<U+202E>gnp.exe",
		"\x1b\x1b[31m]0;title":            "^[\x1b[31m]0;title\x1b[0m",
		"\x1b[31\x1b[mm":                  "^[[31\x1b[mm\x1b[0m",
	} {
		if got := Visible(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

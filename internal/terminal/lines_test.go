package terminal

import "testing"

func TestCutCountsNoColors(t *testing.T) {
	for line, want := range map[string]string{
		"abcdef":                    "ab…",
		"äöüß":                      "äö…",
		"\x1b[32mabc\x1b[0m":        "\x1b[32mabc\x1b[0m",
		"\x1b[32mabcdef\x1b[0m ghi": "\x1b[32mab…\x1b[0m",
	} {
		if got := Cut(line, 3); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

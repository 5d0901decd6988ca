package document

import (
	"testing"
)

func TestSizes(t *testing.T) {
	for s, want := range map[string]uint64{"0": 0, "12": 12, "1B": 1, "1KB": 1000, "1KiB": 1024, "512 MiB": 512 << 20,
		"2GiB": 2 << 30, "1TiB": 1 << 40} {
		if got, err := parseSize(s); got != want || err != nil {
			t.Errorf("%q is %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "MiB", "-1", "1.5MiB", "1mib", "99999999TiB", "18446744073709551616"} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("%q is %d, want an error", s, got)
		}
	}
}

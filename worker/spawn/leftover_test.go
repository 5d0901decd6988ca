package spawn

import (
	"testing"

	"example.org/supervisord/internal/lab/leftover"
)

func TestMain(m *testing.M) { leftover.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package spawn

import (
	"testing"

	"example.org/supervisord/internal/lab/leftover"
)

func TestMain(m *testing.M) { leftover.Main(m) }

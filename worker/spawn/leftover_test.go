package spawn

import (
	"testing"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/unit"
)

func TestMain(m *testing.M) { leftover.Main(m) }

var must = unit.Must

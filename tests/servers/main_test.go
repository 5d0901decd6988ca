package servers

import (
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

package fleet

import (
	"flag"
	"testing"

	"example.org/supervisord/internal/lab"
)

var write = flag.Bool("write", false, "write the transcript of a roll into docs")

func TestMain(m *testing.M) { lab.Main(m) }

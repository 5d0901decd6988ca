package tests

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestEveryProgramOfThisProjectIsStatic(t *testing.T) {
	t.Parallel()
	lab.Need(t, "file")
	for _, name := range []string{"supervisord", "supervisord-tools", "start_server"} {
		out, err := exec.Command("file", filepath.Join(filepath.Dir(lab.Built.Client), name)).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "statically linked") {
			t.Errorf("%v: %s", err, out)
		}
	}
}

package engines

import (
	"os"
	"os/exec"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// succeeds runs a command, which must exit with 0, and returns its output.
func succeeds(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

// text reads a file of the repository.
func text(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(lab.Root(name))
	lab.Must(t, err)
	return string(content)
}

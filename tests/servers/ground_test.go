package servers

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// ground is where the servers are: a root directory with their packages unpacked, or, without a root, this machine.
type ground struct {
	root string
	why  string // there is no root
}

// theGround looks once. The script says why a machine cannot have a root.
var theGround = sync.OnceValue(func() ground {
	if out, err := exec.Command("./root", "check").CombinedOutput(); err != nil {
		return ground{why: strings.TrimSpace(string(out))}
	}
	out, err := exec.Command("./root", "path").Output()
	root := strings.TrimSpace(string(out))
	if _, missing := os.Stat(root + "/etc/servers-tried"); err != nil || missing != nil {
		return ground{why: "nothing is unpacked: tests/servers/root fetch"}
	}
	return ground{root: root}
})

// needs skips the test if one of the programs, absolute paths, is missing. It names the package with it.
func needs(t testing.TB, pkg string, programs ...string) {
	t.Helper()
	g := theGround()
	for _, program := range programs {
		if _, err := os.Stat(g.root + program); err == nil {
			continue
		}
		if g.root != "" {
			t.Skipf("the package %s is not unpacked, there is no %s: tests/servers/root fetch", pkg, program)
		}
		t.Skipf("the package %s is not installed, there is no %s (and no root of its own: %s)", pkg, program, g.why)
	}
}

// command prepares a command that runs where the servers are, in the first of these directories.
func (g ground) command(dirs []string, argv ...string) *exec.Cmd {
	if g.root == "" {
		c := exec.Command(argv[0], argv[1:]...)
		c.Dir = dirs[0]
		return c
	}
	args := append([]string{"enter"}, dirs...)
	args = append(append(args, "--"), argv...)
	return exec.Command("./root", args...)
}

// output runs a command where the servers are, to prepare something, and returns what it wrote.
func output(t testing.TB, dir string, argv ...string) string {
	t.Helper()
	var complaints bytes.Buffer
	c := theGround().command([]string{dir}, argv...)
	c.Stderr = &complaints
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(argv, " "), err, out, complaints.String())
	}
	return string(out)
}

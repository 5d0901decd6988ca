package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// ground is where the servers are: a root directory with the unpacked packages, or this machine.
type ground struct {
	root string
	why  string // why there is no root
}

// theGround is computed once. The script explains why a machine cannot have a root.
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

// needs skips the test if one of the programs (absolute paths) is missing, and names its package.
func needs(t testing.TB, pkg string, programs ...string) {
	t.Helper()
	g := theGround()
	for _, program := range programs {
		if _, err := os.Stat(g.root + program); err == nil {
			continue
		}
		if g.root != "" {
			t.Skipf("the package %s is not unpacked: %s is missing: run tests/servers/root fetch", pkg, program)
		}
		t.Skipf("the package %s is not installed: %s is missing (and there is no separate root: %s)", pkg, program, g.why)
	}
}

// via is the beginning of a command that runs on the ground, in the first of these directories.
func (g ground) via(dirs ...string) []string {
	if g.root == "" {
		return nil
	}
	root, _ := filepath.Abs("root")
	return append(append([]string{root, "enter"}, dirs...), "--")
}

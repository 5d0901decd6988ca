package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

func TestWorkerRunsAsItsUserWithTheSupplementaryGroups(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "run a worker as another user")
	name, groups := userWithGroups(t)
	m := lab.Start(t, lab.Plain+fmt.Sprintf("user = %q\n", name))
	m.Serves(1)
	s := lab.ProcStatus(m.WorkerPID(1))
	got := strings.Fields(s["Groups"])
	slices.Sort(got)
	if strings.Fields(s["Uid"])[0] == "0" || !slices.Equal(got, groups) {
		t.Errorf("user %s has uid %s and groups %v, want %v", name, s["Uid"], got, groups)
	}
	env := lab.Environment(t, m.WorkerPID(1))
	if env["USER"] != name || env["HOME"] == "" {
		t.Errorf("USER=%q HOME=%q", env["USER"], env["HOME"])
	}
}

// userWithGroups finds an ordinary user, preferably one with supplementary groups, and returns all its groups.
func userWithGroups(t *testing.T) (name string, groups []string) {
	t.Helper()
	for l := range strings.Lines(lab.Text("/etc/passwd")) {
		fields := strings.Split(l, ":")
		if len(fields) < 4 || fields[2] == "0" {
			continue
		}
		in := []string{fields[3]}
		for g := range strings.Lines(lab.Text("/etc/group")) {
			group := strings.Split(strings.TrimSpace(g), ":")
			if len(group) == 4 && slices.Contains(strings.Split(group[3], ","), fields[0]) && group[2] != fields[3] {
				in = append(in, group[2])
			}
		}
		if len(in) > len(groups) {
			name, groups = fields[0], in
		}
	}
	slices.Sort(groups)
	return name, groups
}

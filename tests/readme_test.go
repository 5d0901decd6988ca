package tests

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// readme returns the blocks of shell commands in a section of README.md.
func readme(t *testing.T, section string) (blocks []string) {
	t.Helper()
	_, text, found := strings.Cut(lab.Text(lab.Root("README.md")), "\n## "+section+"\n")
	if !found {
		t.Fatalf("README.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// TestFirstRunIsAsREADMESays types the commands of README.md: a build, demo, the session with a program of one's own,
// and the installation, into an empty root. What differs is said below: the port, and prove is shorter and has more
// patience, except with -long.
func TestFirstRunIsAsREADMESays(t *testing.T) {
	t.Parallel()
	lab.Need(t, "bash")
	lab.Need(t, "python3")
	lab.Need(t, "curl")
	tries := readme(t, "Try it")
	if len(tries) != 3 {
		t.Fatalf("README.md has %d blocks of commands under Try it, want 3", len(tries))
	}
	m := lab.Prepare(t)
	out := typed(t, m, tries[0])
	if !strings.Contains(out, "\nPASSED: ") {
		t.Errorf("the demo has not passed:\n%s", out)
	}
	typesSession(t, m, tries[1])

	if installs := readme(t, "Install"); len(installs) != 1 || !strings.HasPrefix(installs[0], "scripts/install ") {
		// packages have tests of their own
		t.Fatalf("README.md has %d blocks of commands under Install, want one that begins with scripts/install: %q",
			len(installs), installs)
	}
	root := m.Path("root")
	install := exec.Command(lab.Root("scripts/install"))
	install.Env = append(os.Environ(), "DESTDIR="+root, "PREFIX=/usr/local", "BINARY="+m.Path("bin/supervisord"))
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, words := range []string{"version", "check -c " + root + "/etc/supervisord/config.toml"} {
		if out, err := exec.Command(root+"/usr/local/bin/supervisord",
			strings.Fields(words)...).CombinedOutput(); err != nil {
			t.Errorf("the installed supervisord %s: %v: %s", words, err, out)
		}
	}
}

// typesSession types a block line by line. Behind an ok and behind curl the comments are what the command prints, with
// … for what varies.
func typesSession(t *testing.T, m *lab.Supervisord, block string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(lab.Reserve(t))
	url := "http://127.0.0.1:" + port + "/"
	// A busy machine may need more than the two seconds.
	script := "sleep() { until command curl -fso ready " + url +
		"; do command sleep 0.1; done; }\ntrap 'kill $(jobs -p) 2>/dev/null || :; wait' EXIT\n"
	lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(block, "8080", port), "\n"), "\n")
	for i, line := range lines {
		command, _, _ := strings.Cut(line, "#")
		if strings.Contains(command, " prove ") && !lab.Long() {
			command = strings.TrimSpace(command) + " --reloads 3 --duration 3s --rate 50 --timeout 1m"
		}
		script += fmt.Sprintf("echo '@%d'\n%s\n", i, command)
		if strings.Contains(command, " init ") {
			script += "sed -i s/8080/" + port + "/ supervisord.toml\n"
		}
	}
	out := typed(t, m, script)
	seen := 0
	for i, line := range lines {
		_, answer, _ := strings.Cut(out, fmt.Sprintf("@%d\n", i))
		answer, _, _ = strings.Cut(answer, fmt.Sprintf("@%d\n", i+1))
		command, comment, _ := strings.Cut(line, "# ")
		want := strings.ReplaceAll(regexp.QuoteMeta(comment), "…", ".*")
		switch {
		case strings.Contains(command, " prove "):
			want = "PASSED"
		case strings.Contains(command, " reload "):
			want = "web: generation 2 serves"
		case !strings.Contains(command, "curl") && !strings.Contains(command, " check "):
			continue
		}
		seen++
		if !regexp.MustCompile("(?m)" + want).MatchString(answer) {
			t.Errorf("%s prints, instead of %s:\n%s", command, want, answer)
		}
	}
	if seen < 5 {
		t.Errorf("only %d lines were compared:\n%s", seen, block)
	}
}

// typed runs commands in an empty directory that looks like a checkout to the go command.
func typed(t *testing.T, m *lab.Supervisord, script string) string {
	t.Helper()
	where, err := exec.LookPath("go")
	lab.Must(t, err)
	m.File("tools/go", fmt.Sprintf(
		"#!/bin/bash\nset -- \"${@/#bin\\//%s/}\"; cd %s && exec %s \"${@/#..\\/bin\\//%s/}\"\n", m.Path("bin"), lab.Root(
			"."), where, m.Path("bin")))
	lab.Must(t, os.Chmod(m.Path("tools/go"), 0o755))
	lab.Must(t, os.MkdirAll(m.Path("tmp"), 0o755))
	c := exec.Command("bash", "-e", m.File("script", script))
	c.Dir = m.Dir
	c.Env = append(os.Environ(), "PATH="+m.Path("tools")+":"+os.Getenv("PATH"), "TMPDIR="+m.Path("tmp"),
		"RUNTIME_DIRECTORY="+m.Path("run"), "NO_COLOR=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if left, _ := filepath.Glob(m.Path("tmp/supervisord-*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	return string(out)
}

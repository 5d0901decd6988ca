package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// largest is the size limit of a file in the repository, in bytes.
const largest = 500 << 10

// tracked lists the files that git tracks, and skips the test outside a git checkout.
func tracked(t *testing.T) []string {
	t.Helper()
	if !exists(".git") {
		t.Skip("this is not a git checkout, so the files of the repository are unknown")
	}
	out, err := exec.Command("git", "-C", "../..", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("git cannot list the files of the repository: %v", err)
	}
	return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
}

func TestRepositoryHasNoProgramAndNoLargeFile(t *testing.T) {
	files := tracked(t)
	if len(files) < 100 {
		t.Fatalf("git lists only %d files", len(files))
	}
	for _, name := range files {
		stat, err := os.Lstat("../../" + name)
		if err != nil || !stat.Mode().IsRegular() {
			continue // deleted, not committed yet; or a symbolic link
		}
		if stat.Size() > largest {
			t.Errorf("%s has %d bytes, at most %d are allowed: keep it out of the repository", name,
				stat.Size(), largest)
		}
		if strings.HasPrefix(text(name), "\x7fELF") {
			t.Errorf("%s is a compiled program: git rm --cached it, and add it to .gitignore", name)
		}
	}
}

// TestREADMEHasTheCommandsThatSetUpAFreshMachine: one runs supervisord, one passes the tests.
func TestREADMEHasTheCommandsThatSetUpAFreshMachine(t *testing.T) {
	for _, command := range []string{"scripts/run", "scripts/test"} {
		if !strings.Contains(text("README.md"), "```sh\n"+command+"\n```") {
			t.Errorf("README.md has no block with the command %s alone", command)
		}
	}
}

// An ellipsis in a name stands for any letters. The README links to its tests: see
// TestLinksInTheDocumentationLeadSomewhere.
func TestEveryTestNamedInTheDocumentationExists(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	quoted := regexp.MustCompile("`((?:Test|Fuzz)[A-Z][\\w…/-]*|…[\\w…]+)`")
	var names []string
	var documents []string
	for _, file := range tracked(t) {
		switch {
		case strings.HasSuffix(file, "_test.go"):
			for _, match := range declared.FindAllStringSubmatch(text(file), -1) {
				names = append(names, match[1])
			}
		case strings.HasPrefix(file, "tests/script/"):
			names = append(names, "TestScript/"+strings.TrimSuffix(filepath.Base(file), ".txtar"))
		case file == "README.md" || file == "CONTRIBUTING.md" ||
			filepath.Dir(file) == "docs" && strings.HasSuffix(file, ".md"):
			documents = append(documents, file)
		}
	}
	found := 0
	for _, document := range documents {
		for _, match := range quoted.FindAllStringSubmatch(text(document), -1) {
			found++
			pattern := regexp.MustCompile("^" + strings.ReplaceAll(match[1], "…", `\w+`) + "$")
			if !slices.ContainsFunc(names, pattern.MatchString) {
				t.Errorf("%s names %s, but no such test exists", document, match[1])
			}
		}
	}
	if found == 0 {
		t.Errorf("no test is named in %q: is the pattern wrong?", documents)
	}
}

func TestLinksInTheDocumentationLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)(?: "([^"]*)")?\)|(?:src|srcset|href)="([^"\s]+)"`)
	found, toTests := 0, 0
	files := tracked(t)
	there := map[string]bool{} // a file that is not committed yet is missing for everybody else
	for _, file := range files {
		for ; !there[file]; file = filepath.Dir(file) {
			there[file] = true
		}
	}
	for _, document := range files {
		if !strings.HasSuffix(document, ".md") || !exists(document) {
			continue
		}
		for _, match := range link.FindAllStringSubmatch(prose(document), -1) {
			target := match[1] + match[3]
			if strings.Contains(target, ":") {
				continue // on the network
			}
			found++
			path, anchor, _ := strings.Cut(target, "#")
			to := filepath.Join(filepath.Dir(document), path)
			if path == "" {
				to = document
			}
			if !there[to] || !exists(to) {
				t.Errorf("%s: %s is not in the repository", document, target)
			} else if anchor != "" && !slices.Contains(anchors(to), anchor) {
				t.Errorf("%s: %s has no anchor %s", document, to, anchor)
			} else if strings.HasPrefix(match[2], "Test") { // the link of a guarantee
				script := "/script/" + strings.TrimPrefix(match[2], "TestScript/") + ".txtar"
				if toTests++; !strings.HasSuffix(to, script) && !strings.Contains(text(to), "\nfunc "+match[2]+"(") {
					t.Errorf("%s: %s has no %s", document, to, match[2])
				}
			}
		}
	}
	if found < 250 || toTests < 50 {
		t.Errorf("only %d links were found, %d of them to tests: is the pattern wrong?", found, toTests)
	}
}

// Messages, comments and examples refer to sections of the documentation, too.
func TestReferencesToTheDocumentationLeadSomewhere(t *testing.T) {
	reference := regexp.MustCompile(`\bdocs/([a-z_-]+\.md)(?:#([A-Za-z0-9._-]*[A-Za-z0-9_-]))?`)
	found := map[string]bool{}
	for _, file := range tracked(t) {
		if strings.HasSuffix(file, ".md") || !exists(file) {
			continue
		}
		for _, match := range reference.FindAllStringSubmatch(text(file), -1) {
			document := "docs/" + match[1]
			if found[match[0]] {
				continue
			}
			found[match[0]] = true
			if !exists(document) || match[2] != "" && !slices.Contains(anchors(document), match[2]) {
				t.Errorf("%s: %s leads nowhere", file, match[0])
			}
		}
	}
	if len(found) < 20 {
		t.Errorf("only %d references were found: is the pattern wrong?", len(found))
	}
}

// TestTextsAvoidWordsThatReadersStumbleOver: each has a plain word in its place.
func TestTextsAvoidWordsThatReadersStumbleOver(t *testing.T) {
	words := regexp.MustCompile(`(?i)\b(?:told to go|go(?:es)? on|for ever|kept ` +
		`(?:ones|connections?)|mend(?:s|ed|ing)?|(?:is|are) no good|whoever|at last)\b|\bserves on(?:[,.;:]| \||$| for\b)`)
	texts := regexp.MustCompile(`\.(?:md|go|toml|yaml|js|sh|service|conf)$`)
	for _, file := range tracked(t) {
		if !texts.MatchString(file) || file == "CHANGELOG.md" || file == "tests/house/documents_test.go" ||
			!exists(file) {
			continue
		}
		for number, line := range strings.Split(text(file), "\n") {
			if found := words.FindString(line); found != "" {
				t.Errorf("%s:%d: %q: write told to stop, continues, keeps serving, forever, keep-alive, fix, invalid, the "+
					"process that, finally", file, number+1, found)
			}
		}
	}
}

// text returns a file of the repository, which must not change meanwhile; "": there is none.
func text(file string) string {
	if _, read := texts[file]; !read {
		content, _ := os.ReadFile("../../" + file)
		texts[file] = string(content)
	}
	return texts[file]
}

// texts and anchored are what text and anchors have read.
var texts, anchored = map[string]string{}, map[string][]string{}

func exists(file string) bool {
	_, err := os.Stat("../../" + file)
	return err == nil
}

// prose returns a document without its blocks of code.
func prose(document string) string {
	return regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(text(document), "")
}

// anchors lists the anchors of a document: those that GitHub makes of headings, and explicit ones.
func anchors(document string) []string {
	if found := anchored[document]; found != nil {
		return found
	}
	heading := regexp.MustCompile(`(?m)^#+ (.*)$|<a id="([^"]+)">`)
	dropped := regexp.MustCompile(`\]\([^)]*\)|[^\pL\pN _-]`)
	times := map[string]int{}
	found := []string{}
	for _, match := range heading.FindAllStringSubmatch(prose(document), -1) {
		if match[2] != "" {
			found = append(found, match[2])
			continue
		}
		name := strings.ReplaceAll(strings.ToLower(dropped.ReplaceAllString(match[1], "")), " ", "-")
		if times[name]++; times[name] > 1 {
			name = fmt.Sprintf("%s-%d", name, times[name]-1)
		}
		found = append(found, name)
	}
	anchored[document] = found
	return found
}

func TestRootModuleDoesNotRequireDependenciesOfExamples(t *testing.T) {
	for _, path := range []string{"google.golang.org/grpc", "github.com/labstack/"} {
		if strings.Contains(text("go.mod"), path) {
			t.Errorf("go.mod requires %s, and everyone who imports worker/graceful inherits it: move it to examples/go.mod",
				path)
		}
	}
}

package tests

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// largest is the size limit of a file in the repository, in bytes.
const largest = 500 << 10

// largeFiles names the files that may be larger, or may be programs, with the reason.
var largeFiles = map[string]string{}

// tracked lists the files that git tracks, and skips the test outside a git checkout.
func tracked(t *testing.T) []string {
	t.Helper()
	if !lab.Exists(lab.Root(".git")) {
		t.Skip("this is not a git checkout, so the files of the repository are unknown")
	}
	lab.Need(t, "git")
	out, err := exec.Command("git", "-C", lab.Root(""), "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("git cannot list the files of the repository: %v", err)
	}
	return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
}

func TestRepositoryHasNoProgramAndNoLargeFile(t *testing.T) {
	t.Parallel()
	files := tracked(t)
	if len(files) < 100 {
		t.Fatalf("git lists only %d files", len(files))
	}
	for _, name := range files {
		if largeFiles[name] != "" {
			continue
		}
		stat, err := os.Lstat(lab.Root(name))
		if err != nil || !stat.Mode().IsRegular() {
			continue // deleted, not committed yet; or a symbolic link
		}
		if stat.Size() > largest {
			t.Errorf("%s has %d bytes, at most %d are allowed: keep it out of the repository, or name it in this test", name,
				stat.Size(), largest)
		}
		if program(t, lab.Root(name)) {
			t.Errorf("%s is a compiled program: git rm --cached it, and add it to .gitignore", name)
		}
	}
}

// TestREADMEHasTheCommandsThatSetUpAFreshMachine: one runs supervisord, one passes the tests.
func TestREADMEHasTheCommandsThatSetUpAFreshMachine(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(lab.Root("README.md"))
	lab.Must(t, err)
	for _, command := range []string{"scripts/run", "scripts/test"} {
		if !strings.Contains(string(readme), "```sh\n"+command+"\n```") {
			t.Errorf("README.md has no block with the command %s alone", command)
		}
	}
}

// An ellipsis in a name stands for any letters. The README links to its tests: see
// TestLinksInTheDocumentationLeadSomewhere.
func TestEveryTestNamedInTheDocumentationExists(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	quoted := regexp.MustCompile("`((?:Test|Fuzz)[A-Z][\\w…/-]*|…[\\w…]+)`")
	var names []string
	var documents []string
	for _, file := range tracked(t) {
		switch {
		case strings.HasSuffix(file, "_test.go"):
			for _, match := range declared.FindAllStringSubmatch(lab.Text(lab.Root(file)), -1) {
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
		for _, match := range quoted.FindAllStringSubmatch(lab.Text(lab.Root(document)), -1) {
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

func TestManualPageOfTheConfigurationIsUpToDate(t *testing.T) {
	t.Parallel()
	lab.Need(t, "sh")
	if out, err := exec.Command("go", "tool", "-C", lab.Root("scripts/tools"), "-n",
		"go-md2man").CombinedOutput(); err != nil {
		t.Skipf("go-md2man cannot be fetched or built: %s", out)
	}
	made := filepath.Join(t.TempDir(), "supervisord.toml.5")
	if out, err := exec.Command(lab.Root("scripts/man"), made).CombinedOutput(); err != nil {
		t.Fatalf("scripts/man: %v: %s", err, out)
	}
	if lab.Text(made) != lab.Text(lab.Root("docs/supervisord.toml.5")) {
		t.Error("docs/supervisord.toml.5 is not what scripts/man makes of docs/configuration.md: run scripts/man")
	}
	lab.Need(t, "groff")
	if out, err := exec.Command("groff", "-man", "-Tutf8", "-ww", "-z", made).CombinedOutput(); err != nil ||
		len(out) > 0 {
		t.Errorf("groff: %v: %s", err, out)
	}
}

func TestLinksInTheDocumentationLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)(?: "([^"]*)")?\)|(?:src|srcset|href)="([^"\s]+)"`)
	found, toTests := 0, 0
	for _, document := range tracked(t) {
		if !strings.HasSuffix(document, ".md") || !lab.Exists(lab.Root(document)) {
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
			if !lab.Exists(lab.Root(to)) {
				t.Errorf("%s: %s does not exist", document, target)
			} else if anchor != "" && !slices.Contains(anchors(prose(to)), anchor) {
				t.Errorf("%s: %s has no anchor %s", document, to, anchor)
			} else if strings.HasPrefix(match[2], "Test") { // the link of a guarantee
				script := "tests/script/" + strings.TrimPrefix(match[2], "TestScript/") + ".txtar"
				if toTests++; to != script && !strings.Contains(lab.Text(lab.Root(to)), "\nfunc "+match[2]+"(") {
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
	t.Parallel()
	reference := regexp.MustCompile(`\bdocs/([a-z_-]+\.md)(?:#([A-Za-z0-9._-]*[A-Za-z0-9_-]))?`)
	found := map[string]bool{}
	for _, file := range tracked(t) {
		if strings.HasSuffix(file, ".md") || !lab.Exists(lab.Root(file)) {
			continue
		}
		for _, match := range reference.FindAllStringSubmatch(lab.Text(lab.Root(file)), -1) {
			document := lab.Root("docs/" + match[1])
			if found[match[0]] {
				continue
			}
			found[match[0]] = true
			if !lab.Exists(document) || match[2] != "" && !slices.Contains(anchors(prose("docs/"+match[1])), match[2]) {
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
	t.Parallel()
	words := regexp.MustCompile(`(?i)\b(?:told to go|go(?:es)? on|for ever|kept ` +
		`(?:ones|connections?)|mend(?:s|ed|ing)?|(?:is|are) no good|whoever|at last)\b|\bserves on(?:[,.;:]| \||$| for\b)`)
	texts := regexp.MustCompile(`\.(?:md|go|toml|yaml|js|sh|service|conf)$`)
	for _, file := range tracked(t) {
		if !texts.MatchString(file) || file == "CHANGELOG.md" || file == "tests/repository_test.go" ||
			!lab.Exists(lab.Root(file)) {
			continue
		}
		for number, line := range strings.Split(lab.Text(lab.Root(file)), "\n") {
			if found := words.FindString(line); found != "" {
				t.Errorf("%s:%d: %q: write told to stop, continues, keeps serving, forever, keep-alive, fix, invalid, the "+
					"process that, finally", file, number+1, found)
			}
		}
	}
}

// prose returns a document without its blocks of code.
func prose(document string) string {
	return regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(lab.Text(lab.Root(document)), "")
}

// anchors lists the anchors of a document: those that GitHub makes of headings, and explicit ones.
func anchors(text string) []string {
	heading := regexp.MustCompile(`(?m)^#+ (.*)$|<a id="([^"]+)">`)
	dropped := regexp.MustCompile(`\]\([^)]*\)|[^\pL\pN _-]`)
	times := map[string]int{}
	var found []string
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
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
	return found
}

// program reports whether a file is an ELF program or object, by its first bytes.
func program(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	lab.Must(t, err)
	defer f.Close()
	head := make([]byte, 4)
	n, _ := io.ReadFull(f, head)
	return bytes.Equal(head[:n], []byte("\x7fELF"))
}

// copySource copies the source without build results into a directory.
func copySource(t *testing.T, to string) {
	t.Helper()
	tracked(t)
	command := exec.Command("sh", "-c",
		`git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || cp -P `+
			`--parents -t "$0" "$f" || exit 255; done' "$1"`, "sh", to)
	command.Dir = lab.Root("")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestSetModulePathRenamesTheModuleThroughout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copySource(t, dir)
	old, err := exec.Command("go", "list", "-m").Output()
	lab.Must(t, err)
	in := func(name string, args ...string) string {
		t.Helper()
		command := exec.Command(name, args...)
		command.Dir = dir
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
		return string(out)
	}
	in("scripts/set-module-path", "github.com/somebody/supervisord")
	if out, _ := exec.Command("grep", "-rlF", strings.TrimSpace(string(old)), dir).Output(); len(out) > 0 {
		t.Errorf("the old path is left in %s", out)
	}
	if out := in("gofmt", "-l", "."); out != "" {
		t.Errorf("not formatted: %s", out)
	}
	for _, module := range []string{".", "examples"} {
		in("go", "list", "-C", module, "-deps", "-test", "./...") // every import leads somewhere
		if lab.Long() {
			in("go", "vet", "-C", module, "./...")
		}
	}
	if out := in("scripts/set-module-path", "github.com/somebody/supervisord"); !strings.Contains(out, "already") {
		t.Errorf("the second time it says %s", out)
	}
	in("scripts/set-module-path", strings.TrimSpace(string(old)))
	if out, err := exec.Command("diff", "-r", "-x", ".git", lab.Root("internal"),
		dir+"/internal").CombinedOutput(); err != nil {
		t.Errorf("after renaming it back the source differs: %s", out)
	}
}

func TestSetModulePathRejectsPathsThatGoGetRejects(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"", "supervisord", "github.com", "github/you", "Github.com/you/x", "https://github.com/you/x", "github.com/you/",
		"/github.com/you",
		"github.com//x", "github.com/you/a b", "github.com/you/x/v1", "github.com/../x", "github.com/you/internal/x",
		"github.com/you/x;id",
	} {
		out, err := exec.Command(lab.Root("scripts/set-module-path"), path).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "github.com/you/supervisord") {
			t.Errorf("%q: %v: %s", path, err, out)
		}
	}
	if err := exec.Command(lab.Root("scripts/set-module-path")).Run(); err == nil {
		t.Error("it succeeds without a path")
	}
}

// outsideWorker is a worker in a separate module, as in docs/worker.md.
const outsideWorker = `package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"{module}/worker/graceful"
)

func main() {
	ln, err := graceful.Listener("http", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "generation="+os.Getenv("SUPERVISORD_GENERATION"))
	})
	if err := graceful.Serve(context.Background(), graceful.HTTP(ln, &http.Server{Handler: mux})); err != nil {
		log.Fatal(err)
	}
}
`

func TestRootModuleDoesNotRequireDependenciesOfExamples(t *testing.T) {
	t.Parallel()
	text := lab.Text(lab.Root("go.mod"))
	for _, path := range []string{"google.golang.org/grpc", "github.com/labstack/"} {
		if strings.Contains(text, path) {
			t.Errorf("go.mod requires %s, and everyone who imports worker/graceful inherits it: move it to examples/go.mod",
				path)
		}
	}
}

func TestWorkerOfAnotherModuleIsRedeployedWithoutLoss(t *testing.T) {
	m := lab.Prepare(t)
	list, err := exec.Command("go", "list", "-m").Output()
	lab.Must(t, err)
	module := strings.TrimSpace(string(list))
	sums, err := os.ReadFile(lab.Root("go.sum"))
	lab.Must(t, err)
	m.File("outside/main.go", strings.ReplaceAll(outsideWorker, "{module}", module))
	m.File("outside/go.mod", "module outside.example/worker\n\ngo 1.26.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+
		" => "+lab.Root("")+"\n")
	m.File("outside/go.sum", string(sums))
	build := exec.Command("go", "build", "-o", m.Path("worker"), ".")
	build.Dir = m.Path("outside")
	// its dependencies are in the module cache
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the worker: %v: %s", err, out)
	}
	info, err := buildinfo.ReadFile(m.Path("worker"))
	lab.Must(t, err)
	for _, d := range info.Deps {
		if !slices.Contains([]string{module, "golang.org/x/sys", "github.com/lestrrat-go/server-starter"}, d.Path) {
			t.Errorf("the worker links %s, which docs/worker.md does not mention", d.Path)
		}
	}
	m.Start(strings.Replace(lab.Hello, "{hello}", `"{dir}/worker"`, 1))
	m.Serves(1)
	m.ReloadUnderLoad(m.Address(), 20, 300*time.Millisecond, 5)
}

package tests

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

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

// copySource copies the source without build results into a directory.
func copySource(t *testing.T, to string) {
	t.Helper()
	if !lab.Exists(lab.Root(".git")) {
		t.Skip("this is not a git checkout, so the files of the repository are unknown")
	}
	lab.Need(t, "git")
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

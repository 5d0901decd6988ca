package engines

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.yaml.in/yaml/v3"

	"example.org/supervisord/internal/lab"
)

// TestScript runs script/*.txtar: each is a story about a pipeline or a tool that deploys to hosts. A host is a
// directory with a supervisord, and with the releases of its program; ssh runs commands there. The commands beside
// those of testscript:
//
//	hosts NAME…                          starts hosts with release 2; the directory of each is then $NAME
//	does CODE COMMAND… [=> TEXT|!TEXT…]  runs a command, which must exit with CODE and say every TEXT
//	log HOST N SENTENCE                  fails unless so many lines of the log of supervisord have it
//	block LANGUAGE HOST FILE             adds to a file the only block in a language of docs/deploy-tools.md, for a host
//	finish HOST                          ends supervisord
func TestScript(t *testing.T) {
	t.Parallel()
	commands := map[string]func(*testscript.TestScript, bool, []string){}
	for name, does := range map[string]func(*pipeline, *testscript.TestScript, []string) error{
		"hosts": (*pipeline).start, "does": (*pipeline).does, "log": (*pipeline).log,
		"block": (*pipeline).block, "finish": (*pipeline).finish} {
		commands[name] = func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(does(ts.Value(pipelineKey{}).(*pipeline), ts, args))
		}
	}
	work, err := os.MkdirTemp(lab.Built.Dir, "work-") // -count runs the stories again
	lab.Must(t, err)
	testscript.Run(t, testscript.Params{Dir: "script", WorkdirRoot: work, RequireUniqueNames: true,
		Setup: preparePipeline, Condition: condition, Cmds: commands})
}

// pipeline is one script while it runs.
type pipeline struct {
	t     testing.TB
	hosts map[string]*lab.Supervisord
}

type pipelineKey struct{}

func condition(name string) (bool, error) {
	if fetched, is := strings.CutPrefix(name, "fetched:"); is { // by scripts/test
		dir, err := os.UserCacheDir()
		return lab.Exists(filepath.Join(dir, "supervisord-servers", fetched)), err
	}
	out, _ := exec.Command("cap", "--version").Output()
	return name == "capistrano-3" && strings.Contains(string(out), "Version: 3."), nil
}

const ci = "examples/fleet/ci/"

// preparePipeline makes the directory in which CI works: deploy.sh, the steps of the workflow of GitHub, and the job of
// GitLab with the exit codes that it takes for warnings.
func preparePipeline(e *testscript.Env) error {
	cache, err := os.UserCacheDir()
	for name, value := range map[string]string{"HOME": e.WorkDir, "ROOT": "web", "GORACE": "atexit_sleep_ms=0",
		"PATH": e.WorkDir + "/bin:" + os.Getenv("PATH"), "source": lab.Root(""), "fetched": cache + "/supervisord-servers"} {
		e.Setenv(name, value)
	}
	e.Values[pipelineKey{}] = &pipeline{e.T().(testing.TB), map[string]*lab.Supervisord{}}
	var github struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run string }
		}
	}
	var gitlab struct {
		Deploy struct {
			Script       []string
			AllowFailure struct {
				ExitCodes []int `yaml:"exit_codes"`
			} `yaml:"allow_failure"`
		}
	}
	err = errors.Join(err, yaml.Unmarshal([]byte(lab.Text(lab.Root(ci+"github.yaml"))), &github),
		yaml.Unmarshal([]byte(lab.Text(lab.Root(ci+"gitlab-ci.yml"))), &gitlab), os.Mkdir(e.WorkDir+"/bin", 0o755))
	files := map[string]string{"deploy.sh": lab.Text(lab.Root(ci + "deploy.sh")),
		"gitlab":       strings.Join(gitlab.Deploy.Script, "\n"),
		"gitlab.warns": fmt.Sprintln(gitlab.Deploy.AllowFailure.ExitCodes)}
	for _, step := range github.Jobs["deploy"].Steps {
		files["github."+step.Name] = step.Run
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(e.WorkDir, name), []byte(text), 0o755))
	}
	return err
}

// releases are the commands of the releases that each host has.
var releases = map[string]string{
	"2":        "exec ./worker",
	"broken":   "echo cannot read web.conf >&2; exit 3",
	"stubborn": "exec ./worker term=ignore",
}

func (p *pipeline) start(ts *testscript.TestScript, names []string) (err error) {
	ssh := "#!/bin/sh\nhost=$1; shift\ncase ${host#*@} in\n"
	for _, name := range names {
		h := lab.Prepare(p.t)
		for release, command := range releases {
			dir := h.Path("web/releases/" + release)
			err = errors.Join(err, os.MkdirAll(dir, 0o755), os.Symlink(lab.Built.Worker, dir+"/worker"),
				os.WriteFile(dir+"/web", []byte("#!/bin/sh\n"+command+"\n"), 0o755))
		}
		h.File("bin/supervisord", "#!/bin/sh\nexec "+lab.Built.Supervisord+" -c {dir}/config.toml \"$@\"\n")
		err = errors.Join(err, os.Symlink("releases/2", h.Path("web/current")), os.Chmod(h.Path("bin/supervisord"), 0o755))
		h.Start(strings.Replace(lab.Web, "command = [{worker}]",
			"command = [\"./web\"]\ndirectory = \"{dir}/web/current\"\nstderr = \"capture\"\nstop.timeout = \"1s\"", 1))
		h.Serves(1)
		p.hosts[name] = h
		ts.Setenv(name, h.Dir)
		ssh += name + ") cd " + h.Dir + "; PATH=" + h.Path("bin") + ":$PATH ;;\n"
	}
	ssh += "*) echo \"ssh: cannot reach $host\" >&2; exit 255 ;;\nesac\nexec sh -c \"$*\"\n"
	return errors.Join(err, os.WriteFile(ts.Getenv("WORK")+"/bin/ssh", []byte(ssh), 0o755))
}

func (p *pipeline) finish(_ *testscript.TestScript, args []string) error {
	p.hosts[args[0]].Finish()
	return nil
}

func (p *pipeline) does(ts *testscript.TestScript, args []string) error {
	command, want := args[1:], []string(nil)
	if i := slices.Index(args, "=>"); i > 0 {
		command, want = args[1:i], args[i+1:]
	}
	err := ts.Exec(command[0], command[1:]...)
	code := 0
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		code = exit.ExitCode()
	} else if err != nil {
		return err
	}
	said := ts.ReadFile("stdout") + ts.ReadFile("stderr")
	if strconv.Itoa(code) != args[0] {
		return fmt.Errorf("exit status %d, want %s: %s", code, args[0], said)
	}
	for _, w := range want {
		if text, absent := strings.CutPrefix(w, "!"); strings.Contains(said, text) == absent {
			return fmt.Errorf("want %q: %s", w, said)
		}
	}
	return nil
}

func (p *pipeline) log(_ *testscript.TestScript, args []string) error {
	host, says := p.hosts[args[0]], lab.Says(args[2])
	want, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	host.AwaitN(want, says)
	if n := host.Count(says); n != want {
		return fmt.Errorf("%d lines of the log of %s are %q", n, args[0], args[2])
	}
	return nil
}

func (p *pipeline) block(ts *testscript.TestScript, args []string) error {
	found := regexp.MustCompile("(?s)```"+args[0]+"\n(.*?)```").FindAllStringSubmatch(
		lab.Text(lab.Root("docs/deploy-tools.md")), -1)
	if len(found) != 1 {
		return fmt.Errorf("docs/deploy-tools.md has %d blocks of %s", len(found), args[0])
	}
	text := ts.ReadFile(args[2]) + strings.ReplaceAll(found[0][1], "/srv/web", p.hosts[args[1]].Path("web"))
	return os.WriteFile(ts.MkAbs(args[2]), []byte(text), 0o644)
}

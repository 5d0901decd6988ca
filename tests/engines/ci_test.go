package engines

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"example.org/supervisord/internal/lab"
)

const ci = "examples/fleet/ci/"

// host is a machine of a pipeline: a directory, a supervisord, and the releases of its program.
type host struct {
	*lab.Supervisord
	name string
}

// releases are the commands of the releases that each host has, but for the first.
var releases = map[string]string{
	"2":        "exec {worker}",
	"broken":   "echo cannot read web.conf >&2; exit 3",
	"stubborn": "exec {worker} term=ignore",
}

// pipeline is where CI runs: a directory with deploy.sh, in whose PATH ssh runs commands on the hosts.
func pipeline(t *testing.T, names ...string) (dir string, hosts []*host) {
	t.Helper()
	lab.Need(t, "bash")
	m := lab.Prepare(t)
	ssh := "#!/bin/sh\nhost=$1; shift\ncase ${host#*@} in\n"
	for _, name := range names {
		h := &host{lab.Prepare(t), name}
		hosts = append(hosts, h)
		for release, command := range releases {
			lab.Must(t, os.MkdirAll(h.Path("web/releases/"+release), 0o755))
			lab.Must(t, os.Symlink(lab.Built.Self, h.Path("web/releases/"+release+"/tests")))
			command = strings.ReplaceAll(command, "{worker}", "./tests "+lab.WorkerWord)
			lab.Must(t, os.WriteFile(h.Path("web/releases/"+release+"/web"), []byte("#!/bin/sh\n"+command+"\n"), 0o755))
		}
		lab.Must(t, os.Symlink("releases/2", h.Path("web/current")))
		h.File("bin/supervisord", "#!/bin/sh\nexec "+lab.Built.Supervisord+" -c {dir}/config.toml \"$@\"\n")
		lab.Must(t, os.Chmod(h.Path("bin/supervisord"), 0o755))
		h.Start(strings.Replace(lab.Web, "command = [{worker}]",
			"command = [\"./web\"]\ndirectory = \"{dir}/web/current\"\nstderr = \"capture\"\nstop.timeout = \"1s\"", 1))
		h.Serves(1)
		ssh += name + ") cd " + h.Dir + "; PATH=" + h.Path("bin") + ":$PATH ;;\n"
	}
	m.File("bin/ssh", ssh+"*) echo \"ssh: cannot reach $host\" >&2; exit 255 ;;\nesac\nexec sh -c \"$*\"\n")
	lab.Must(t, os.Chmod(m.Path("bin/ssh"), 0o755))
	script := text(t, ci+"deploy.sh")
	lab.Must(t, os.WriteFile(m.Path("deploy.sh"), []byte(script), 0o755))
	return m.Dir, hosts
}

// leadsTo returns the release to which `current` leads.
func (h *host) leadsTo() string {
	target, err := os.Readlink(h.Path("web/current"))
	lab.Must(h.T, err)
	return filepath.Base(target)
}

// run runs a part of a pipeline in its directory and returns its output and its exit status.
func run(t *testing.T, dir string, environment []string, argv ...string) (string, int) {
	t.Helper()
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir = dir
	c.Env = append([]string{"PATH=" + dir + "/bin:" + os.Getenv("PATH"), "HOME=" + dir, "ROOT=web",
		"GORACE=atexit_sleep_ms=0"}, environment...)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// verdict reads the document that the pipeline keeps of a host.
func verdict(t *testing.T, dir, host string) (v struct {
	Outcome  string
	Exit     int
	Error    string
	Programs []struct{ Generation, Killed int }
}) {
	t.Helper()
	raw, err := os.ReadFile(dir + "/verdict-" + host + ".json")
	lab.Must(t, err)
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("verdict-%s.json: %v\n%s", host, err, raw)
	}
	return v
}

// githubSteps returns the shell scripts of the workflow by the names of their steps.
func githubSteps(t *testing.T) map[string]string {
	t.Helper()
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run string }
		}
	}
	lab.Must(t, yaml.Unmarshal([]byte(text(t, ci+"github.yaml")), &workflow))
	steps := map[string]string{}
	for _, s := range workflow.Jobs["deploy"].Steps {
		steps[s.Name] = s.Run
	}
	return steps
}

func TestGitHubDeploysToAllHosts(t *testing.T) {
	t.Parallel()
	lab.Need(t, "jq")
	dir, hosts := pipeline(t, "web1", "web2")
	steps := githubSteps(t)
	environment := []string{"RELEASE=stubborn", "HOSTS=deploy@web1 web2", "GITHUB_STEP_SUMMARY=" + dir + "/summary"}
	if out, status := run(t, dir, environment, "bash", "-ec", steps["Deploy"]); status != 0 ||
		strings.Contains(out, "::") {
		t.Fatalf("status %d: %s", status, out)
	}
	for _, h := range hosts {
		if h.leadsTo() != "stubborn" || verdict(t, dir, h.name).Outcome != "serves" {
			t.Errorf("%s: current leads to %s, verdict %+v", h.name, h.leadsTo(), verdict(t, dir, h.name))
		}
	}
	environment[0] = "RELEASE=2" // the workers of the release before do not stop
	out, status := run(t, dir, environment, "bash", "-ec", steps["Deploy"])
	if status != 0 || !strings.Contains(out, "::warning::2 serves, but old workers had to be killed") ||
		verdict(t, dir, "web2").Programs[0].Killed != 1 {
		t.Errorf("status %d: %s", status, out)
	}
	out, status = run(t, dir, environment, "bash", "-ec", steps["Summary"])
	if summary, _ := os.ReadFile(dir + "/summary"); status != 0 || strings.Count(string(summary), "| killed | ") != 3 {
		t.Errorf("status %d: %s\n%s", status, out, summary)
	}
}

func TestGitHubStopsAtTheFirstHostWhereAReleaseFails(t *testing.T) {
	t.Parallel()
	lab.Need(t, "jq")
	dir, hosts := pipeline(t, "web1", "web2")
	steps := githubSteps(t)
	environment := []string{"RELEASE=broken", "HOSTS=web1 web2", "GITHUB_STEP_SUMMARY=" + dir + "/summary"}
	out, status := run(t, dir, environment, "bash", "-ec", steps["Deploy"])
	for _, want := range []string{"cannot read web.conf", "stopped at web1: broken failed; the release before serves",
		"::error::broken"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in: %s", want, out)
		}
	}
	if v := verdict(t, dir, "web1"); status != 11 || v.Exit != 11 || v.Outcome != "worker" || hosts[0].leadsTo() != "2" {
		t.Errorf("status %d, verdict %+v, current leads to %s", status, v, hosts[0].leadsTo())
	}
	if hosts[1].Count(lab.Says(lab.TrialBegan)) != 1 || lab.Exists(dir+"/verdict-web2.json") {
		t.Error("the second host was deployed to")
	}
	if out, status = run(t, dir, environment, "bash", "-ec", steps["Summary"]); status != 0 ||
		!strings.Contains(lab.Text(dir+"/summary"), "| worker |") {
		t.Errorf("status %d: %s\n%s", status, out, lab.Text(dir+"/summary"))
	}
}

func TestGitLabTakesAKilledWorkerForAWarningAndAFailedReleaseForAFailure(t *testing.T) {
	t.Parallel()
	var jobs struct {
		Deploy struct {
			Script       []string
			AllowFailure struct {
				ExitCodes []int `yaml:"exit_codes"`
			} `yaml:"allow_failure"`
		}
	}
	lab.Must(t, yaml.Unmarshal([]byte(text(t, ci+"gitlab-ci.yml")), &jobs))
	dir, hosts := pipeline(t, "web1")
	deploy := func(release string) (string, int) {
		return run(t, dir, []string{"CI_COMMIT_TAG=" + release, "WEB_HOSTS=deploy@web1"}, "bash", "-eo", "pipefail", "-c",
			strings.Join(jobs.Deploy.Script, "\n"))
	}
	for _, c := range []struct {
		release  string
		status   int
		leadsTo  string
		accepted bool
	}{{"stubborn", 0, "stubborn", true}, {"broken", 11, "stubborn", false}, {"2", 16, "2", true}, {"none", 1, "2",
		false}, {"../x", 2, "2", false}, {"x;reboot", 2, "2", false}} {
		out, status := deploy(c.release)
		accepted := status == 0 || slices.Contains(jobs.Deploy.AllowFailure.ExitCodes, status)
		if status != c.status || accepted != c.accepted || hosts[0].leadsTo() != c.leadsTo {
			t.Errorf("release %s: status %d, current leads to %s: %s", c.release, status, hosts[0].leadsTo(), out)
		}
	}
}

func TestDeployScriptSaysWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	dir, hosts := pipeline(t, "web1")
	if out, status := run(t, dir, nil, "./deploy.sh", "2", "web9", "web1"); status != 255 ||
		!strings.Contains(out, "stopped at web9: supervisord reload or ssh exited with 255: it is unknown whether 2 serves") {
		t.Errorf("status %d: %s", status, out)
	}
	real := hosts[0].Read("bin/supervisord")
	hosts[0].File("bin/supervisord", "#!/bin/sh\nkill -PIPE $$\n") // as if the connection broke
	if out, status := run(t, dir, nil, "./deploy.sh", "stubborn", "web1"); status != 141 ||
		hosts[0].leadsTo() != "stubborn" {
		t.Errorf("status %d, current leads to %s: %s", status, hosts[0].leadsTo(), out)
	}
	hosts[0].File("bin/supervisord", real)
	hosts[0].Finish()
	if out, status := run(t, dir, nil, "./deploy.sh", "broken", "web1"); status != 69 ||
		!strings.Contains(out, "stopped at web1: nothing has changed") || hosts[0].leadsTo() != "stubborn" {
		t.Errorf("status %d: %s", status, out)
	}
}

func TestJobsOfCIAreValid(t *testing.T) {
	t.Parallel()
	t.Run("github", func(t *testing.T) {
		succeeds(t, lab.Fetched(t, "engines/actionlint"), lab.Root(ci+"github.yaml"))
	})
	t.Run("gitlab", func(t *testing.T) {
		succeeds(t, lab.Fetched(t, "python-engines/bin/check-jsonschema"), "--builtin-schema", "vendor.gitlab-ci",
			lab.Root(ci+"gitlab-ci.yml"))
	})
}

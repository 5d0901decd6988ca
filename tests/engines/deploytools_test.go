package engines

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// block returns the only block in this language of docs/deploy-tools.md, for the releases of a host.
func (h *host) block(language string) string {
	h.T.Helper()
	found := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(
		text(h.T.(*testing.T), "docs/deploy-tools.md"), -1)
	if len(found) != 1 {
		h.T.Fatalf("docs/deploy-tools.md has %d blocks of %s", len(found), language)
	}
	return strings.ReplaceAll(found[0][1], "/srv/web", h.Path("web"))
}

// deploys runs a deploy with a release that serves, and one that fails: the tool must fail, and say why.
func (h *host) deploys(deploy func(release string) (string, int)) {
	h.T.Helper()
	if out, status := deploy("2"); status != 0 || h.Count(lab.Says(lab.GenerationServes)) != 2 {
		h.T.Fatalf("status %d: %s", status, out)
	}
	if out, status := deploy("broken"); status == 0 || !strings.Contains(out, "cannot read web.conf") {
		h.T.Errorf("status %d: %s", status, out)
	}
	if h.Count(lab.Says(lab.TrialFailed)) != 1 {
		h.T.Error("supervisord did not try the second release")
	}
}

// tool prepares a host for a tool that runs in its directory.
func tool(t *testing.T, needs string) (*host, func(argv ...string) (string, int)) {
	t.Helper()
	lab.Need(t, needs)
	_, hosts := pipeline(t, "web1")
	return hosts[0], func(argv ...string) (string, int) { return run(t, hosts[0].Dir, nil, argv...) }
}

// Capistrano deploys from a repository, as it does for its users, but to this machine.
func TestCapistranoReloadsAfterItHasPublished(t *testing.T) {
	t.Parallel()
	lab.Need(t, "git")
	h, command := tool(t, "cap")
	if content, _ := exec.Command("cap", "--version").Output(); !strings.Contains(string(content), "Version: 3.") {
		t.Skipf("this is not Capistrano 3: %s", content)
	}
	h.File("Capfile", "require 'capistrano/setup'\nrequire 'capistrano/deploy'\nrequire 'capistrano/scm/git'\n"+
		"install_plugin Capistrano::SCM::Git\n")
	h.File("config/deploy/production.rb", "role :web, [:local]\n")
	h.File("config/deploy.rb", fmt.Sprintf(
		"set :application, 'web'\nset :repo_url, '%s'\nset :deploy_to, '%s'\nset :format_options, color: false\n%s",
		h.Path("repository"), h.Path("web"), h.block("ruby")))
	h.deploys(func(release string) (string, int) {
		out, status := command("sh", "-ec", `
			git init -q -b master repository
			cp web/releases/`+release+`/* repository
			git -C repository add -A
			git -C repository -c user.name=test -c user.email=test@localhost commit -qm release
			exec cap production deploy`)
		return out + lab.Text(h.Path("log/capistrano.log")), status
	})
	if out, status := command("cap", "production", "deploy:rollback"); status != 0 ||
		h.Count(lab.Says(lab.GenerationServes)) != 3 {
		t.Errorf("the rollback ended with %d: %s", status, out)
	}
}

func TestFabricReloadsHostAfterHost(t *testing.T) {
	t.Parallel()
	python := lab.Fetched(t, "python-engines/bin/python")
	h, command := tool(t, "git")
	h.File("fabfile.py", h.block("python"))
	// a Context runs on this machine what a Connection runs on a host
	h.File("drive.py", "import sys, invoke, fabfile\nprint([h for h in fabfile.deploy.hosts])\n"+
		"fabfile.deploy.body(invoke.Context(), sys.argv[1])\n")
	h.deploys(func(release string) (string, int) { return command(python, "drive.py", release) })
	if out, status := command(lab.Fetched(t, "python-engines/bin/fab"), "--list"); status != 0 ||
		!strings.Contains(out, "deploy") {
		t.Errorf("fab --list: %d %s", status, out)
	}
}

// Deployer itself has no package, so its functions are replaced by what they do.
func TestDeployerReloadsHostAfterHost(t *testing.T) {
	t.Parallel()
	h, command := tool(t, "php")
	h.File("deploy.php", `<?php
class Task { function __construct(public $body) {} function limit(int $hosts): self { return $this; } }
$tasks = []; $after = [];
function task(string $name, callable $body): Task { global $tasks; return $tasks[$name] = new Task($body); }
function after(string $task, string $do): void { global $after; $after[$task] = $do; }
function run(string $command, ?int $timeout = null): string {
    exec($command . ' 2>&1', $output, $status);
    if ($status) { fwrite(STDERR, implode("\n", $output)); exit($status); }
    return implode("\n", $output);
}
`+h.block("php")+`
run('cd web && ln -sfn releases/' . $argv[1] . ' current.new && mv -T current.new current');
($tasks[$after['deploy:symlink']]->body)();
`)
	h.deploys(func(release string) (string, int) { return command("php", "deploy.php", release) })
}

package engines

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"

	"example.org/supervisord/internal/lab"
)

// settings are what an engine must know of a configuration of supervisord.
type settings struct {
	Supervisor struct {
		HTTP      string
		StopDelay duration `toml:"stop_delay"`
	}
	Program map[string]struct {
		Listen []struct{ Address string }
		Stop   struct{ Timeout duration }
	}
}

type duration struct{ time.Duration }

func (d *duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

// parsed parses a configuration with one program. It returns how long its stop may take, and the ports of its
// listeners.
func parsed(t *testing.T, config string) (s settings, stop time.Duration, ports []string) {
	t.Helper()
	if _, err := toml.Decode(config, &s); err != nil {
		t.Fatalf("%v\n%s", err, config)
	}
	for _, p := range s.Program {
		stop = p.Stop.Timeout.Duration
		for _, l := range p.Listen {
			ports = append(ports, strings.TrimPrefix(l.Address, ":"))
		}
	}
	return s, stop, ports
}

// workload is what the tests need to know of a DaemonSet or Deployment.
type workload struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string // of a ConfigMap
	Spec     struct {
		Template struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Name  string
					Ports []struct {
						Name string
						Port string `yaml:"containerPort"`
					}
					Readiness probe `yaml:"readinessProbe"`
					Liveness  probe `yaml:"livenessProbe"`
				}
			}
		}
	}
}

type probe struct {
	Get struct{ Path, Port string } `yaml:"httpGet"`
}

var manifests = []string{"examples/fleet/kubernetes/edge.yaml", "examples/containers/kubernetes.yaml"}

// read reads a manifest: the configuration of supervisord in its ConfigMap, and the workload.
func read(t *testing.T, manifest string) (config string, w workload) {
	t.Helper()
	documents := yaml.NewDecoder(strings.NewReader(text(t, manifest)))
	for {
		var d workload
		err := documents.Decode(&d)
		if err == io.EOF {
			return config, w
		}
		lab.Must(t, err)
		switch d.Kind {
		case "ConfigMap":
			config = d.Data["config.toml"]
		case "Deployment", "DaemonSet":
			w = d
		}
	}
}

func TestKubernetesManifestsSuitTheirConfiguration(t *testing.T) {
	t.Parallel()
	for _, manifest := range manifests {
		config, w := read(t, manifest)
		s, stop, ports := parsed(t, config)
		c := w.Spec.Template.Spec.Containers[0]
		named := map[string]string{}
		for _, p := range c.Ports {
			named[p.Name] = p.Port
		}
		if len(ports) != 1 || named["http"] != ports[0] {
			t.Errorf("%s: the container has the ports %v, the program %v", manifest, named, ports)
		}
		for path, p := range map[string]probe{"/readyz": c.Readiness, "/healthz": c.Liveness} {
			if p.Get.Path != path || ":"+named[p.Get.Port] != s.Supervisor.HTTP {
				t.Errorf("%s: a probe asks for %s on port %s (%s), want %s on %s", manifest, p.Get.Path, p.Get.Port,
					named[p.Get.Port], path, s.Supervisor.HTTP)
			}
		}
		needed := s.Supervisor.StopDelay.Duration + stop
		if grace := time.Duration(w.Spec.Template.Spec.Grace) * time.Second; needed == 0 || grace < needed+3*time.Second ||
			grace > needed+10*time.Second {
			t.Errorf("%s: terminationGracePeriodSeconds is %v; a stop may take %v", manifest, grace, needed)
		}
	}
}

// release installs the n-th release of a node: a worker, or something that fails.
func release(t *testing.T, dir, command string) {
	t.Helper()
	lab.Must(t, os.MkdirAll(dir, 0o755))
	lab.Must(t, os.WriteFile(dir+"/serve", []byte("#!/bin/sh\n"+command+"\n"), 0o755))
}

// worker is a command of release that serves.
func worker() string { return "exec " + lab.Built.Worker }

func TestKubernetesNodeFollowsTheReleaseOnItsVolume(t *testing.T) {
	t.Parallel()
	config, _ := read(t, "examples/fleet/kubernetes/edge.yaml")
	m := lab.Prepare(t)
	address := lab.Reserve(t)
	for number, command := range map[string]string{"1": worker(), "2": worker(), "3": "exit 3"} {
		release(t, m.Path("releases/.worktrees/"+number), command)
	}
	lab.Must(t, os.Symlink(".worktrees/1", m.Path("releases/current")))
	config = strings.NewReplacer("\"/releases", "\""+m.Dir+"/releases", "\":8080\"", "\""+address+"\"", "\":9001\"",
		"\"unix:{dir}/http.sock\"",
		"soak = \"5s\"", "soak = \"10ms\"").Replace(config)
	m.Start(strings.Replace(config, "[supervisor]\n", "", 1))
	page := "unix:" + m.Path("http.sock")
	m.Serves(1)
	link := func(number string) { // as git-sync does
		lab.Must(t, os.Symlink(".worktrees/"+number, m.Path("releases/tmp-link")))
		lab.Must(t, os.Rename(m.Path("releases/tmp-link"), m.Path("releases/current")))
	}
	link("2")
	m.Gone(1)
	if got := lab.Ask(t, address, "/"); !strings.Contains(got, "generation=2 ") {
		t.Errorf("the node serves %s", got)
	}
	link("3")
	m.Await(lab.Says(lab.TrialFailed), lab.Gen(3))
	if got := lab.Ask(t, address, "/"); !strings.Contains(got, "generation=2 ") {
		t.Errorf("the node serves %s", got)
	}
	lab.Ask(t, page, "/readyz")
	lab.Ask(t, page, "/healthz")
	if metrics := lab.Ask(t, page, "/metrics"); !strings.Contains(metrics,
		`directory="`+m.Dir+`/releases/.worktrees/2"`) ||
		!strings.Contains(metrics, `supervisord_reloads_total{outcome="worker",program="edge"} 1`) {
		t.Error(metrics)
	}
}

// job is what the tests need to know of Nomad's job. Durations are nanoseconds.
type job struct {
	TaskGroups []struct {
		ShutdownDelay time.Duration
		Networks      []struct {
			ReservedPorts []struct {
				Label string
				Value int
			}
		}
		Services []struct {
			PortLabel string
			Checks    []struct{ Path, PortLabel string }
		}
		Tasks []struct {
			KillTimeout time.Duration
			Config      struct {
				Command string
				Args    []string
			}
			Templates []struct {
				EmbeddedTmpl, DestPath, ChangeMode string
				ChangeScript                       struct {
					Command     string
					Args        []string
					Timeout     time.Duration
					FailOnError bool
				}
			}
		}
	}
}

func TestNomadNodeReloadsWhenTheReleaseChanges(t *testing.T) {
	t.Parallel()
	var j job
	lab.Must(t, json.Unmarshal([]byte(
		succeeds(t, lab.Fetched(t, "engines/nomad-job"), lab.Root("examples/fleet/nomad/edge.nomad.hcl"))), &j))
	group := j.TaskGroups[0]
	task, service := group.Tasks[0], group.Services[0]
	template := task.Templates[0]

	// Nomad evaluates the template.
	m := lab.Prepare(t)
	address := lab.Reserve(t)
	rendered := func(number string) string {
		config := regexp.MustCompile(`\{\{ with nomadVar "nomad/jobs/edge" \}\}.*?\{\{ end \}\}`).ReplaceAllString(
			template.EmbeddedTmpl, number)
		config = strings.NewReplacer(`:{{ env "NOMAD_PORT_http" }}`, address, `:{{ env "NOMAD_PORT_supervisord" }}`,
			"unix:"+m.Path("http.sock"),
			"/local", m.Dir, "/srv/edge", m.Dir, "soak = \"5s\"", "soak = \"10ms\"").Replace(config)
		if strings.Contains(config, "{{") {
			t.Fatalf("the test does not know everything in the template:\n%s", config)
		}
		return config
	}
	for number, command := range map[string]string{"42": worker(), "43": worker(), "44": "exit 3"} {
		release(t, m.Path("releases/"+number), command)
	}
	m.File("config.toml", rendered("42"))
	m.Launch(strings.Split(strings.ReplaceAll(strings.Join(task.Config.Args, " "), "/local", m.Dir), " ")...)
	m.Serves(1)
	change := func(number string) int { // as Nomad does
		m.File("config.toml", rendered(number))
		_, code := m.Run(strings.Split(strings.ReplaceAll(strings.Join(template.ChangeScript.Args, " "), "/local", m.Dir),
			" ")...)
		return code
	}
	if code := change("43"); code != 0 || !strings.Contains(lab.Ask(t, address, "/"), "generation=2 ") {
		t.Errorf("the change to release 43 ended with %d", code)
	}
	if code := change("44"); code != 11 || !strings.Contains(lab.Ask(t, address, "/"), "generation=2 ") {
		t.Errorf("the change to release 44, which fails, ended with %d", code)
	}
	lab.Ask(t, "unix:"+m.Path("http.sock"), service.Checks[0].Path)

	_, stop, _ := parsed(t, rendered("42"))
	if task.KillTimeout < stop+3*time.Second || group.ShutdownDelay == 0 {
		t.Errorf("kill_timeout is %v, shutdown_delay %v; a stop may take %v", task.KillTimeout, group.ShutdownDelay, stop)
	}
	if service.PortLabel != "http" || service.Checks[0].PortLabel != "supervisord" ||
		len(group.Networks[0].ReservedPorts) != 2 {
		t.Errorf("service %+v, ports %+v", service, group.Networks[0].ReservedPorts)
	}
	if s := template.ChangeScript; template.ChangeMode != "script" || s.Command != task.Config.Command || s.FailOnError ||
		s.Timeout < 2*time.Minute ||
		filepath.Join("/", template.DestPath) != "/local/config.toml" {
		t.Errorf("the template is %+v", template)
	}
}

package tests

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/lab"
)

// containerFile is a file in examples/containers.
func containerFile(t *testing.T, name string) string {
	raw, err := os.ReadFile(lab.Root("examples/containers/" + name))
	lab.Must(t, err)
	return string(raw)
}

func TestContainerDocumentationQuotesTheFiles(t *testing.T) {
	files := ""
	for _, name := range []string{"Containerfile", "config/config.toml", "compose.yaml", "kubernetes.yaml"} {
		files += "\n" + containerFile(t, name)
	}
	page, err := os.ReadFile(lab.Root("docs/containers.md"))
	lab.Must(t, err)
	blocks := regexp.MustCompile("(?s)```[a-z]+\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 4 {
		t.Errorf("the page has %d files, want 4", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(files, "\n"+b[1]) {
			t.Errorf("no file in examples/containers has this text:\n%s", b[1])
		}
	}
}

// manifest is what the tests read of kubernetes.yaml.
type manifest struct {
	Kind string
	Data map[string]string
	Spec struct {
		Template struct {
			Spec struct {
				Grace int `yaml:"terminationGracePeriodSeconds"`
			}
		}
	}
}

func TestContainerExamplesGiveTheStopEnoughTime(t *testing.T) {
	c, err := config.Load(lab.Root("examples/containers/config/config.toml"))
	lab.Must(t, err)
	stop := c.Supervisor.StopDelay
	for _, step := range c.Programs[0].Stop.Steps {
		stop += step.Wait
	}
	graces := map[string]time.Duration{}
	var compose struct {
		Services map[string]struct {
			Grace time.Duration `yaml:"stop_grace_period"`
		}
	}
	lab.Must(t, yaml.Unmarshal([]byte(containerFile(t, "compose.yaml")), &compose))
	graces["compose.yaml"] = compose.Services["web"].Grace
	d := yaml.NewDecoder(bytes.NewReader([]byte(containerFile(t, "kubernetes.yaml"))))
	for m := (manifest{}); d.Decode(&m) == nil; m = (manifest{}) {
		switch m.Kind {
		case "Deployment":
			graces["kubernetes.yaml"] = time.Duration(m.Spec.Template.Spec.Grace) * time.Second
		case "ConfigMap":
			if m.Data["config.toml"] != containerFile(t, "config/config.toml") {
				t.Errorf("the ConfigMap has another configuration:\n%s", m.Data["config.toml"])
			}
		}
	}
	for file, grace := range graces {
		if spare := grace - stop; spare < 5*time.Second || spare > 10*time.Second {
			t.Errorf("%s: the grace period is %v, and the stop may take %v", file, grace, stop)
		}
	}
	if len(graces) != 2 {
		t.Errorf("the files have %v", graces)
	}
}

package main

import (
	"slices"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

// daemonModules are the modules of others that cmd/supervisord links: what a stranger must trust in a process that may
// be root. A new one needs a reason.
var daemonModules = []string{
	"github.com/BurntSushi/toml",
	"github.com/beorn7/perks",
	"github.com/cespare/xxhash/v2",
	"github.com/cilium/ebpf", // socket/flow: without it, an assembler, a loader and the verifier's log would be ours
	"github.com/fsnotify/fsnotify",
	"github.com/munnerz/goautoneg",
	"github.com/prometheus/client_golang",
	"github.com/prometheus/client_model",
	"github.com/prometheus/common",
	"github.com/prometheus/procfs",
	"github.com/spf13/cobra",
	"github.com/spf13/pflag",
	"go.uber.org/multierr",
	"go.uber.org/zap",
	"golang.org/x/sys",
	"google.golang.org/protobuf",
}

// workerModules are those that a worker links with worker/graceful, as docs/worker.md says.
var workerModules = []string{"github.com/lestrrat-go/server-starter", "golang.org/x/sys"}

func TestProgramsLinkExactlyTheseModules(t *testing.T) {
	for what, want := range map[string][]string{daemonProgram: daemonModules, "worker/graceful": workerModules} {
		linked := must.Get(goList("../..", "-deps", "./"+what))(t)
		if now := modulesOf(linked); !slices.Equal(now, want) {
			t.Errorf("%s links\n%q, want\n%q", what, now, want)
		}
	}
}

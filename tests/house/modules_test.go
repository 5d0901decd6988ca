package main

import (
	"slices"
	"testing"
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

func TestSupervisordLinksExactlyTheseModules(t *testing.T) {
	linked, err := goList("../..", "-deps", "./"+daemonProgram)
	if err != nil {
		t.Fatal(err)
	}
	if now := modulesOf(linked); !slices.Equal(now, daemonModules) {
		t.Errorf("cmd/supervisord links\n%q, want\n%q", now, daemonModules)
	}
}

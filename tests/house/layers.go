package main

import (
	"fmt"
	"slices"
	"strings"
)

// layers are the packages from the lowest to the highest. A package imports only from lower layers; those of
// one layer do not know each other. A name that ends in /... stands for the package and all below.
var layers = [][]string{
	// What knows nothing of the rest.
	{"internal/foreign", "internal/pattern"},
	{"internal/clients", "internal/config/document", "internal/getopt", "internal/lab/browser", "internal/lab/load",
		"internal/lab/must", "internal/lab/netns", "internal/proc",
		"internal/reserved", "internal/spool", "internal/systemd", "internal/terminal", "internal/watch", "socket/diag",
		"socket/flow", "socket/inherit", "worker/spawn/before", "examples/measure/certificate",
		"examples/measure/clock"},
	{"internal/cgroup", "internal/commandline", "internal/epoll", "internal/lab/leftover", "internal/lab/plot",
		"internal/lab/systemd", "internal/lab/unit", "internal/lab/worker", "internal/multicast", "internal/servers",
		"internal/siginfo", "internal/statusfile", "socket/holder", "worker/graceful", "worker/output"},
	{"socket/unixpath", "worker/spawn"},
	{"worker/bind", "worker/life"},
	{"worker/ready"},
	// Sockets and workers, which do not know each other.
	{"socket", "worker"},
	{"socket/dialect"},
	{"internal/config/environment", "internal/config/meant", "internal/config/reach"},
	{"internal/config", "internal/platform"},
	{"internal/starter"},
	// What decides, what survives, what carries out.
	{"supervisor/program", "supervisor/snapshot"},
	{"supervisor/record"},
	{"supervisor"},
	// What reads the supervisor's reports, and what asks it.
	{"internal/observe/receipt", "internal/observe/metrics", "internal/observe/usage"},
	{"internal/observe/hooks", "internal/observe/page", "internal/control"},
	{"internal/observe", "internal/lab/process"},
	// What convert reads and writes.
	{"internal/convert/shell"},
	{"internal/convert/source"},
	{"internal/convert/draft"},
	{"internal/convert/apps", "internal/convert/unit"},
	// The commands.
	{"internal/convert", "internal/daemon", "internal/prove", "internal/scaffold"},
	{"cmd/start_server", "cmd/supervisord", "cmd/supervisord-tools"},
	// What tests and measures, and the examples.
	{"internal/lab", "examples/measure/kit", "examples/grpc/greeter", "tests/soak/account"},
	{"tests/soak/traffic"},
	{"tests/...", "examples/..."},
}

// layer returns the number of a package's layer; -1 if it has none.
func layer(short string) int {
	return slices.IndexFunc(layers, func(names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			prefix, all := strings.CutSuffix(name, "/...")
			return short == prefix || all && strings.HasPrefix(short, prefix+"/")
		})
	})
}

// upwardImports returns the imports of a package from its own layer or a higher one, and the packages that have none.
func (m *module) upwardImports() (wrong []string) {
	for _, p := range m.packages {
		from := layer(p.short())
		if from < 0 {
			wrong = append(wrong, p.short()+": no layer; add it to layers in tests/house/layers.go")
		}
		for _, path := range p.imports {
			to := strings.TrimPrefix(path, modulePath+"/")
			if layer(to) >= from {
				wrong = append(wrong, fmt.Sprintf("%s imports %s", p.short(), to))
			}
		}
	}
	return wrong
}

package commandline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// development is the version of a build without a version from the linker or the go command.
const development = "1.0.0-dev"

// The linker sets these: scripts/version --ldflags. The go command records the commit by itself, but not in a
// git worktree.
var linkedVersion, linkedCommit string

// build describes how this program was built. `supervisord version --json` prints it.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`   // "": built outside a checkout
	Modified bool   `json:"modified"` // the checkout had changes that were not committed
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return newBuild(linkedVersion, linkedCommit, info)
}

func newBuild(version, commit string, info *debug.BuildInfo) build {
	b := build{
		Version: cmp.Or(version, released(info.Main.Version), development), Commit: commit,
		Go: cmp.Or(info.GoVersion, runtime.Version()), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(commit, s.Value)
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// released returns the version of the module if it is that of a release, as `go install PATH@v1.2.3` has it, or "". The
// go command makes up a v0.0.0 for a checkout without a tag, and adds "+dirty" to the version of one with changes.
func released(module string) string {
	version, _, _ := strings.Cut(strings.TrimPrefix(module, "v"), "+")
	if version == "(devel)" || strings.HasPrefix(version, "0.0.0-") {
		return ""
	}
	return version
}

// short is the version in the log, the status and the metrics. A development version has the commit in it.
func (b build) short() string {
	if b.Version != development || b.Commit == "" {
		return b.Version
	}
	return b.Version + "+" + b.commit(".")
}

// commit is the commit, shortened and with a mark where the checkout had changes.
func (b build) commit(separator string) string {
	short := b.Commit[:min(12, len(b.Commit))]
	if b.Modified {
		short += separator + "modified"
	}
	return short
}

// String is the line that `supervisord version` prints.
func (b build) String() string {
	details := []string{b.Go, b.Platform}
	if b.Commit != "" {
		details = append([]string{"commit " + b.commit(", ")}, details...)
	}
	return fmt.Sprintf("supervisord %s (%s)", b.Version, strings.Join(details, ", "))
}

// Version is the short version of this build.
func Version() string { return thisBuild().short() }

// VersionCommand prints the version of this build.
func VersionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		RunE:  func(*cobra.Command, []string) error { return PrintVersion(asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print an object with version, commit, modified, go and platform")
	return c
}

// PrintVersion prints the version in one line, or as an object.
func PrintVersion(asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(thisBuild())
	}
	_, err := fmt.Println(thisBuild())
	return err
}

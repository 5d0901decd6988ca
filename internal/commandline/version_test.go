package commandline

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionOfABuild(t *testing.T) {
	checkout := func(version, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: version}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: modified},
		}}
	}
	if got := newBuild("1.2.3", "fedcba", checkout("", "false")).String(); !strings.HasPrefix(got,
		"supervisord 1.2.3 (commit fedcba, ") {
		t.Errorf("with a commit from the linker the line is %q", got)
	}
	for name, c := range map[string]struct {
		linked      string
		info        *debug.BuildInfo
		short, line string
	}{
		"a version from the linker": {"1.2.3", checkout("v0.0.0-20260101000000-0123456789ab", "false"), "1.2.3",
			"supervisord 1.2.3 (commit 0123456789ab, go1.26.1, "},
		"go install of a release": {"", &debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: "v1.4.0"}},
			"1.4.0", "supervisord 1.4.0 (go1.26.1, "},
		"a checkout without a tag": {"", checkout("v0.0.0-20260101000000-0123456789ab", "false"), "1.0.0-dev+0123456789ab",
			"supervisord 1.0.0-dev (commit 0123456789ab, go1.26.1, "},
		"a checkout with changes": {"", checkout("v0.0.0-20260101000000-0123456789ab+dirty", "true"),
			"1.0.0-dev+0123456789ab.modified", "supervisord 1.0.0-dev (commit 0123456789ab, modified, go1.26.1, "},
		"a tag with changes": {"", checkout("v1.4.0+dirty", "true"), "1.4.0",
			"supervisord 1.4.0 (commit 0123456789ab, modified, "},
		"a build without a checkout": {"", &debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Version: "(devel)"}},
			"1.0.0-dev", "supervisord 1.0.0-dev (go1.26.1, "},
		"a build without anything": {"", &debug.BuildInfo{}, "1.0.0-dev", "supervisord 1.0.0-dev (go1."},
	} {
		b := newBuild(c.linked, "", c.info)
		if got := b.short(); got != c.short {
			t.Errorf("%s: the short version is %q, want %q", name, got, c.short)
		}
		if got := b.String(); !strings.HasPrefix(got, c.line) {
			t.Errorf("%s: the line is %q, want %q", name, got, c.line)
		}
	}
}

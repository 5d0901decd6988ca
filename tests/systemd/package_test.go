package systemd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"

	"example.org/supervisord/internal/lab"
)

// pack runs scripts/package: "SOURCE DIST VERSION FORMATS [NAME=VALUE…]", by default for the architecture of this
// machine.
func (s *story) pack(words []string) error {
	return pack(s.ts.MkAbs(words[0]), s.ts.MkAbs(words[1]), words[2], words[3], words[4:]...)
}

func pack(source, dist, version, formats string, environment ...string) error {
	command := exec.Command(filepath.Join(source, "scripts/package"), dist)
	command.Env = append(append(os.Environ(), "ARCHS="+runtime.GOARCH, "FORMATS="+formats, "VERSION="+version,
		"COMMIT=0123456789abcdef", "SOURCE_DATE_EPOCH=1700000000"), environment...)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("scripts/package: %w\n%s", err, out)
	}
	return nil
}

// packed makes the packages of version 1.2.3 in every format, in $dist, and in its next those of 1.2.4 for dpkg and
// rpm, or skips the story if the tools of scripts/package cannot be fetched.
func (s *story) packed([]string) error {
	missing, err := packOnce()
	if missing != "" {
		s.t.Skip(missing)
	}
	return err
}

var packOnce = sync.OnceValues(func() (missing string, err error) {
	for _, tool := range []string{"nfpm", "cyclonedx-gomod"} {
		path := exec.Command("go", "tool", "-C", lab.Root("scripts/tools"), "-n", tool)
		path.Env = append(os.Environ(), "GOFLAGS=-trimpath") // as scripts/package
		if out, err := path.CombinedOutput(); err != nil {
			return fmt.Sprintf("scripts/package cannot have %s: %s", tool, out), nil
		}
	}
	dist := filepath.Join(lab.Built.Dir, "packages")
	if err = pack(lab.Root(""), dist, "1.2.3", "deb rpm apk tar sbom"); err == nil {
		err = pack(lab.Root(""), dist+"/next", "1.2.4", "deb rpm")
	}
	return "", err
})

package systemd_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.org/supervisord/internal/lab"
)

// pack runs scripts/package of a source tree for the architecture of this machine.
func pack(t *testing.T, source, dist, version, formats string, environment ...string) {
	t.Helper()
	if out, err := exec.Command("go", "-C", filepath.Join(repository(t), "scripts/tools"), "mod",
		"download").CombinedOutput(); err != nil {
		t.Skipf("the tools of scripts/package cannot be fetched: %s", out)
	}
	command := exec.Command(filepath.Join(source, "scripts/package"), dist)
	command.Env = append(os.Environ(),
		append([]string{"ARCHS=" + runtime.GOARCH, "FORMATS=" + formats, "VERSION=" + version,
			"COMMIT=0123456789abcdef", "SOURCE_DATE_EPOCH=1700000000"}, environment...)...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("scripts/package: %v\n%s", err, out)
	}
}

var packOnce sync.Once

// packed returns a directory with the packages of version 1.2.3 in every format, and in next those of 1.2.4 for dpkg
// and rpm.
func packed(t *testing.T) string {
	t.Helper()
	dist := filepath.Join(built.dir, "packages")
	packOnce.Do(func() {
		pack(t, repository(t), dist, "1.2.3", "deb rpm apk tar sbom")
		pack(t, repository(t), dist+"/next", "1.2.4", "deb rpm")
	})
	if _, err := os.Stat(dist + "/next/SHA256SUMS"); err != nil {
		t.Skip("scripts/package has failed, or its tools are missing")
	}
	return dist
}

// one returns the only file that matches a pattern.
func one(t *testing.T, pattern ...string) string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(pattern...))
	if len(found) != 1 {
		t.Fatalf("%q matches %q", pattern, found)
	}
	return found[0]
}

// tool runs a program of this machine, or skips the test if it is missing.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is missing", name)
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// contents describes every file and directory below dir by its mode and the hash of its content.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, dir)] = fmt.Sprintf("%v %x", info.Mode(), sha256.Sum256(raw))
		return err
	}))
	return found
}

// names makes the names of installed files comparable with those in packages.
func names(files map[string]string) []string {
	var list []string
	for name := range files {
		name = strings.TrimSuffix(name, ".gz")
		list = append(list, strings.Replace(name, "doc/supervisord/LICENSE", "doc/supervisord/copyright", 1))
	}
	slices.Sort(list)
	return list
}

func TestPackagesHoldWhatInstallInstalls(t *testing.T) {
	t.Parallel()
	dist, dir := packed(t), t.TempDir()
	for _, kind := range []string{"deb", "rpm", "apk", "tar.gz"} {
		must(t, os.Mkdir(filepath.Join(dir, kind), 0o755))
	}
	tool(t, "dpkg-deb", "-x", one(t, dist, "*.deb"), dir+"/deb")
	tool(t, "bsdtar", "-xf", one(t, dist, "*.rpm"), "-C", dir+"/rpm")
	tool(t, "bsdtar", "-xf", one(t, dist, "*.apk"), "-C", dir+"/apk")
	tool(t, "tar", "-xzf", one(t, dist, "*.tar.gz"), "-C", dir+"/tar.gz")
	deb := contents(t, dir+"/deb")
	if rpm := contents(t, dir+"/rpm"); !maps.Equal(deb, rpm) {
		t.Errorf("the .deb has %q, the .rpm %q", names(deb), names(rpm))
	}
	apk := contents(t, dir+"/apk")
	for _, control := range []string{"/.PKGINFO", "/.post-upgrade"} {
		if apk[control] == "" {
			t.Errorf("the .apk has no %s", control)
		}
		delete(apk, control)
	}
	if !maps.Equal(deb, apk) {
		t.Errorf("the .deb has %q, the .apk %q", names(deb), names(apk))
	}
	install := exec.Command(one(t, dir, "tar.gz/*/scripts/install"))
	install.Env = append(os.Environ(), "DESTDIR="+dir+"/installed", "PREFIX=/usr", "BINARY=")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("scripts/install of the tarball: %v\n%s", err, out)
	}
	installed := contents(t, dir+"/installed")
	delete(installed, "/usr/bin/start_server")
	if !slices.Equal(names(installed), names(deb)) {
		t.Errorf("the tarball installs %q, the .deb %q", names(installed), names(deb))
	}
	for _, root := range []string{"deb", "installed"} {
		if said := tool(t, dir+"/"+root+"/usr/bin/supervisord", "--version"); !strings.HasPrefix(said,
			"supervisord 1.2.3 (commit 0123456789ab, go") {
			t.Errorf("the program in %s says %q", root, said)
		}
	}
	if stat, err := os.Stat(dir + "/deb/etc/supervisord/conf.d"); err != nil || !stat.IsDir() {
		t.Errorf("the .deb has no conf.d: %v", err)
	}
}

func TestPackagesSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	dist := packed(t)
	deb := one(t, dist, "*.deb")
	control := tool(t, "dpkg-deb", "-f", deb)
	for _, want := range []string{"Package: supervisord\n", "Version: 1.2.3-1\n", "Conflicts: supervisor\n"} {
		if !strings.Contains(control, want) {
			t.Errorf("the .deb lacks %q:\n%s", want, control)
		}
	}
	const files = "/etc/supervisord/config.toml\n/etc/supervisord/config.toml.example\n"
	if conffiles := tool(t, "dpkg-deb", "--ctrl-tarfile", deb); !strings.Contains(conffiles, files) {
		t.Errorf("conffiles of the .deb: %q", conffiles)
	}
	rpm := tool(t, "rpm", "-qp", "--qf", "%{NAME} %{VERSION}\n[%{CONFLICTS}\n]", "--configfiles", one(t, dist, "*.rpm"))
	if rpm != files+"supervisord 1.2.3\nsupervisor\n" && rpm != "supervisord 1.2.3\nsupervisor\n"+files {
		t.Errorf("the .rpm says %q", rpm)
	}
	if apk := tool(t, "bsdtar", "-xOf", one(t, dist, "*.apk"), ".PKGINFO"); !strings.Contains(apk,
		"\npkgver = 1.2.3-r1\n") || !strings.Contains(apk, "\ndepend = !supervisor\n") {
		t.Errorf("the .apk says %q", apk)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dist
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK\n") != 7 {
		t.Errorf("%v: %s", err, out)
	}
	var bill struct {
		Metadata   struct{ Component struct{ Version string } }
		Components []struct{ Name, Version string }
	}
	raw, err := os.ReadFile(one(t, dist, "supervisord-[0-9]*.cdx.json"))
	must(t, err)
	must(t, json.Unmarshal(raw, &bill))
	var parts []string
	for _, c := range bill.Components {
		parts = append(parts, c.Name)
	}
	if bill.Metadata.Component.Version != "1.2.3" || !slices.Contains(parts, "go.uber.org/zap") ||
		!slices.Contains(parts, "std") {
		t.Errorf("the bill of materials of %q has %q", bill.Metadata.Component.Version, parts)
	}
}

// In full both architectures are built, the second time from nothing.
func TestTwoBuildsOfThePackagesHaveTheSameBytes(t *testing.T) {
	t.Parallel()
	source, dist, dir := t.TempDir(), t.TempDir(), t.TempDir()
	copying := exec.Command("sh", "-c",
		`git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || cp -P `+
			`--parents -t "$0" "$f" || exit 255; done' "$1"`, "sh", source)
	copying.Dir = repository(t)
	if out, err := copying.CombinedOutput(); err != nil {
		t.Skipf("not a git checkout: %s", out)
	}
	var again []string
	first := packed(t)
	if lab.Long() {
		pack(t, repository(t), dist, "1.2.3", "deb rpm apk tar sbom", "ARCHS=amd64 arm64")
		first, again = dist, []string{"ARCHS=amd64 arm64", "GOCACHE=" + t.TempDir()}
	}
	pack(t, source, dir, "1.2.3", "deb rpm apk tar sbom", again...)
	want, err1 := os.ReadFile(first + "/SHA256SUMS")
	have, err2 := os.ReadFile(dir + "/SHA256SUMS")
	if err1 != nil || err2 != nil || !bytes.Equal(want, have) {
		t.Errorf("%v, %v: first\n%s\nthen\n%s", err1, err2, want, have)
	}
}

// filesOf lists the files of the lab, without those that every package manager and every daemon writes.
func (l *Lab) filesOf() []string {
	l.t.Helper()
	return strings.Split(l.Run("find", "/", "-xdev", "(", "-path", "/tmp", "-o", "-path", "/run", "-o", "-path", "/root",
		"-o", "-path", "/var/lib/dpkg",
		"-o", "-path", "/var/cache", "-o", "-path", "/var/log/journal", "-o", "-path", "/var/log/dpkg.log", "-o", "-path",
		"/var/log/alternatives.log",
		"-o", "-path", "/var/lib/systemd", ")", "-prune", "-o", "-print"), "\n")
}

// serving waits until the program of helloConfig serves, and returns its workers.
func (l *Lab) serving() []string {
	l.t.Helper()
	l.Install("examples/hello", "/usr/local/bin/hello")
	l.Write("/etc/supervisord/conf.d/hello.toml", helloConfig, 0o644)
	l.Run("supervisord", "check")
	l.Run("systemctl", "reload", "supervisord")
	return l.Workers("hello")
}

// inPlace checks that upgrade replaces supervisord in place, under load: no request is lost, and the processes are the
// same.
func (l *Lab) inPlace(upgrade func()) {
	l.t.Helper()
	running := func() string { return l.Master() + " " + strings.Join(l.Workers("hello"), " ") }
	load := l.Load("127.0.0.1:8080", 2, 2)
	enough := func() {
		before := load.Requests()
		l.Until("the load continues", func() bool { return load.Requests() > before+100 })
	}
	enough()
	for range 2 {
		before := l.Workers("hello")
		l.Run("systemctl", "reload", "supervisord")
		l.Until("the old workers have ended", func() bool {
			return !slices.ContainsFunc(l.Workers("hello"), func(pid string) bool { return slices.Contains(before, pid) })
		})
	}
	if status := l.Run("supervisord", "status"); !strings.Contains(status, "1.2.3") {
		l.t.Errorf("the first version runs as\n%s", status)
	}
	before := running()
	upgrade()
	if after := running(); after != before {
		l.t.Errorf("master and workers were %s and are %s", before, after)
	}
	if status := l.Run("supervisord", "status"); !strings.Contains(status, "1.2.4") {
		l.t.Errorf("the second version runs as\n%s", status)
	}
	enough()
	load.Lossless()
}

func TestDebianPackageIsInstalledUpgradedUnderLoadAndPurged(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		dist := packed(t)
		l.Run("rm", "-f", "/etc/dpkg/dpkg.cfg.d/99mmdebstrap") // it keeps documentation out of the lab
		l.Copy(one(t, dist, "*.deb"), "/root/1.deb")
		l.Copy(one(t, dist, "next/*.deb"), "/root/2.deb")
		before := l.filesOf()
		l.Run("dpkg", "-i", "/root/1.deb")
		l.Run("systemctl", "is-enabled", "supervisord")
		l.Run("systemctl", "is-active", "supervisord")
		l.Run("man", "-w", "1", "supervisord")
		if out, code := l.Try("ls", "/usr/bin/start_server"); code == 0 {
			t.Errorf("nobody asked for %s", out)
		}
		l.Run("update-alternatives", "--install", "/usr/bin/start_server", "start_server",
			"/usr/lib/supervisord/start_server", "50")
		l.Run("start_server", "--help")
		l.serving()
		l.Write("/etc/supervisord/config.toml", l.Read("/etc/supervisord/config.toml")+"# mine\n", 0o644)
		l.inPlace(func() { l.Run("dpkg", "-i", "/root/2.deb") })
		if !strings.Contains(l.Read("/etc/supervisord/config.toml"), "# mine\n") {
			t.Error("the upgrade has replaced an edited configuration")
		}
		l.brokenUpgrade(t)
		l.Run("dpkg", "-r", "supervisord")
		if workers := l.Workers("hello"); len(workers) > 0 {
			t.Errorf("%v are left", workers)
		}
		if result := l.Property("supervisord", "ActiveState"); result != "inactive" {
			t.Errorf("after the removal the service is %s", result)
		}
		l.Run("ls", "/etc/supervisord/config.toml", "/etc/supervisord/conf.d/hello.toml")
		l.Run("dpkg", "-P", "supervisord")
		l.Run("rm", "/usr/local/bin/hello")
		if after := l.filesOf(); !slices.Equal(after, before) {
			t.Errorf("left: %q", slices.DeleteFunc(after, func(file string) bool { return slices.Contains(before, file) }))
		}
	})
}

// brokenUpgrade lets the maintainer script upgrade to a program that does not run.
func (l *Lab) brokenUpgrade(t *testing.T) {
	t.Helper()
	before := append(l.Workers("hello"), l.Master())
	l.Run("mv", "/usr/bin/supervisord", "/usr/bin/supervisord.good")
	l.Write("/usr/bin/supervisord", "#!/bin/sh\nexit 1\n", 0o755)
	out := l.Run("/var/lib/dpkg/info/supervisord.postinst", "configure", "1.2.4-1")
	if !strings.Contains(out, "keeps running in the previous version") {
		t.Errorf("the script does not say that the upgrade has failed: %s", out)
	}
	if after := append(l.Workers("hello"), l.Master()); !slices.Equal(after, before) {
		t.Errorf("workers and master were %v and are %v", before, after)
	}
	l.Run("mv", "/usr/bin/supervisord.good", "/usr/bin/supervisord")
}

// The lab has no rpm. What it does is known: it unpacks the files, calls %post of the new package with the number of
// installed versions, then %preun and %postun of the old one with the number of those that are left.
func TestRPMScriptletsUpgradeInPlaceAndStopOnRemoval(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		dist := packed(t)
		scriptlet := func(pattern, tag string, left string) {
			t.Helper()
			l.Write("/root/scriptlet", tool(t, "rpm", "-qp", "--qf", "%{"+tag+"}", one(t, dist, pattern)), 0o755)
			l.Run("sh", "/root/scriptlet", left)
		}
		unpack := func(pattern string) { tool(t, "bsdtar", "-xf", one(t, dist, pattern), "-C", l.Path("/")) }
		unpack("*.rpm")
		scriptlet("*.rpm", "POSTIN", "1")
		l.Run("systemctl", "is-enabled", "supervisord") // by Debian's preset
		l.Run("systemctl", "start", "supervisord")
		l.serving()
		l.inPlace(func() {
			unpack("next/*.rpm")
			scriptlet("next/*.rpm", "POSTIN", "2")
			scriptlet("*.rpm", "PREUN", "1")
			scriptlet("*.rpm", "POSTUN", "1")
		})
		scriptlet("next/*.rpm", "PREUN", "0")
		if workers := l.Workers("hello"); len(workers) > 0 {
			t.Errorf("%v are left", workers)
		}
		if out, code := l.Try("systemctl", "is-enabled", "supervisord"); code == 0 {
			t.Errorf("after the removal the service is %s", out)
		}
	})
}

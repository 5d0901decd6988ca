package commandline

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

func TestConfigurationIsThatOfTheVariableElseTheInstalledElseTheOneInTheDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	installed, local := filepath.Join(dir, "installed.toml"), filepath.Join(dir, localConfig)
	finds := func(variable, path, note string, named bool) {
		t.Helper()
		got, err := findConfig(variable, installed)
		if err != nil || got.Path != path || got.Named != named || got.Note != note {
			t.Errorf("%+v, %v", got, err)
		}
	}
	write := func(path string) {
		t.Helper()
		must.Do(t, os.WriteFile(path, nil, 0o644))
	}
	finds("", installed, "", false) // there is none
	write(local)
	finds("", local, "using "+local, true)
	finds("/a.toml", "/a.toml", "", true)
	write(installed)
	finds("", installed, "using "+installed+"; for the file in this directory write -c supervisord.toml", false)
	must.Do(t, os.Remove(local))
	finds("", installed, "", false)
}

func TestConfigurationInADirectoryOfSomebodyElseIsRefused(t *testing.T) {
	elsewhere := t.TempDir()
	for what, spoil := range map[string]func(path string) error{
		"other users may write ": func(path string) error { return os.Chmod(path, 0o666) },
		"(mode 0777)":            func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) },
		"belongs to another user (uid 65534)": func(path string) error {
			return os.Lchown(path, 65534, -1)
		},
		elsewhere + "/c belongs to another user": func(path string) error {
			theirs := filepath.Join(elsewhere, "c")
			return errors.Join(os.WriteFile(theirs, nil, 0o644), os.Chown(theirs, 65534, -1), os.Remove(path),
				os.Symlink(theirs, path))
		},
		"supervisord.toml belongs to another user (uid 65533)": func(path string) error {
			return errors.Join(os.Rename(path, path+"2"), os.Symlink(path+"2", path), os.Lchown(path, 65533, -1))
		},
	} {
		if strings.Contains(what, "another user") && os.Geteuid() != 0 {
			continue // only root can give a file away
		}
		dir := t.TempDir()
		t.Chdir(dir)
		path := filepath.Join(dir, localConfig)
		must.Do(t, errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, nil, 0o644), spoil(path)))
		_, err := findConfig("", "/no/such/file")
		if err == nil || !strings.Contains(err.Error(), what) ||
			!strings.HasSuffix(err.Error(), "write -c supervisord.toml") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

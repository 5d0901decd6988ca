package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"example.org/supervisord/worker"
)

// missing warns of files that are not there now: they are needed only when a generation starts.
func (v value) missing(p *Program) {
	v.child("directory").warnMissing(p.Directory)
	for _, path := range p.EnvironmentFiles {
		v.child("environment_file").warnMissing(path)
	}
	v.child("environment_dir").warnMissing(p.EnvironmentDir)
	for _, c := range []struct {
		at   value
		argv []string
	}{
		{v.child("command"), p.Command},
		{v.child("reload").child("preflight"), p.Reload.Preflight},
		{v.child("ready").child("command"), p.Ready.Command},
		{v.child("health").child("command"), p.Health.Command},
		{v.child("hooks").child("after_reload"), p.Hooks.AfterReload},
		{v.child("hooks").child("reload_failed"), p.Hooks.ReloadFailed},
		{v.child("hooks").child("worker_crashed"), p.Hooks.WorkerCrashed},
	} {
		if len(c.argv) > 0 && !strings.Contains(c.argv[0], "{") {
			c.at.warnNoCommand(p, c.argv[0])
		}
	}
}

func (v value) warnMissing(path string) {
	if path == "" {
		return
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		v.warn("there is no "+path, "it must be there when a generation starts")
	}
}

// warnNoCommand warns of a command that could not be executed now.
func (v value) warnNoCommand(p *Program, name string) {
	if strings.Contains(name, "/") {
		path := absolute(p.Directory, name)
		v.warnMissing(path)
		if info, err := os.Stat(path); err == nil && !isExecutable(info) {
			v.warn(path+" cannot be executed", "chmod +x %s", path)
		}
		return
	}
	path, ok := p.searchPath()
	if !ok {
		return
	}
	if !inPath(path, p.Directory, name) {
		v.warn(fmt.Sprintf("there is no %s in PATH, which is %q", name, path), "it must be there when a generation starts; write its whole path, or set PATH in environment")
	}
}

// searchPath returns the PATH that workers of p are to have; false: its files cannot be read now. The PATH of who runs `check` stands
// for that of supervisord.
func (p *Program) searchPath() (string, bool) {
	variables := map[string]string{"PATH": worker.DefaultPath}
	if own, ok := os.LookupEnv("PATH"); ok {
		variables["PATH"] = own
	}
	if configured, ok := p.Environment["PATH"]; ok {
		variables["PATH"] = configured
	}
	fromFiles, err := ReadEnvironment(p.EnvironmentFiles, p.EnvironmentDir, p.Dialects)
	if err != nil {
		return "", false
	}
	fromFiles.Apply(variables)
	path, ok := variables["PATH"]
	if !ok {
		path = worker.DefaultPath
	}
	return path, true
}

// inPath reports whether a command is in one of the directories of path; also where one of them cannot be looked into, because
// workers may be able to.
func inPath(path, directory, name string) bool {
	for dir := range strings.SplitSeq(path, ":") {
		info, err := os.Stat(filepath.Join(absolute(directory, dir), name))
		switch {
		case err == nil && isExecutable(info):
			return true
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return true
		}
	}
	return false
}

func isExecutable(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"example.org/supervisord/worker/spawn"
)

// missing warns of files that do not exist now: they are needed only when a generation starts.
func (v value) missing(p *Program) {
	v.child("directory").warnMissing(p.Directory)
	for _, path := range p.EnvironmentFiles {
		v.child("environment_file").warnMissing(path)
	}
	v.child("environment_dir").warnMissing(p.EnvironmentDir)
	hooks := v.child("hooks")
	v.child("command").warnNoCommand(p, p.Command)
	v.child("reload").child("preflight").warnNoCommand(p, p.Reload.Preflight)
	v.child("ready").child("command").warnNoCommand(p, p.Ready.Command)
	v.child("health").child("command").warnNoCommand(p, p.Health.Command)
	hooks.child("after_reload").warnNoCommand(p, p.Hooks.AfterReload)
	hooks.child("reload_failed").warnNoCommand(p, p.Hooks.ReloadFailed)
	hooks.child("worker_crashed").warnNoCommand(p, p.Hooks.WorkerCrashed)
}

func (v value) warnMissing(path string) {
	if path == "" {
		return
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		v.warn("there is no "+path, "it must exist when a generation starts")
	}
}

// warnNoCommand warns of a command that could not be executed now.
func (v value) warnNoCommand(p *Program, argv []string) {
	if len(argv) == 0 || strings.Contains(argv[0], "{") {
		return
	}
	name := argv[0]
	if strings.Contains(name, "/") {
		path := absolute(p.Directory, name)
		v.warnMissing(path)
		if info, err := os.Stat(path); err == nil && !isExecutable(info) {
			v.warn(path+" cannot be executed", "chmod +x %s", path)
		}
		return
	}
	if path, ok := p.searchPath(); ok && !inPath(path, p.Directory, name) {
		v.warn(fmt.Sprintf("there is no %s in PATH, which is %q", name, path), "it must exist when a generation starts; write its whole path, or set PATH in environment")
	}
}

// searchPath returns the PATH of the workers of p; false: its files cannot be read now. The PATH of the user of `check` stands for that
// of supervisord.
func (p *Program) searchPath() (string, bool) {
	variables := map[string]string{}
	if own, ok := os.LookupEnv("PATH"); ok {
		variables["PATH"] = own
	}
	if configured, ok := p.Environment["PATH"]; ok {
		variables["PATH"] = configured
	}
	fromFiles, err := ReadEnvironment(p.EnvironmentFiles, p.EnvironmentDir, p.Dialects)
	fromFiles.Apply(variables)
	path, ok := variables["PATH"]
	if !ok {
		path = spawn.DefaultPath
	}
	return path, err == nil
}

// inPath reports whether a command is in one of the directories of path. A directory that cannot be read counts, because workers may
// be able to read it.
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

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/worker/spawn"
)

// warnMissingFiles warns of files that do not exist now: they are needed only when a generation starts.
func warnMissingFiles(v document.Value, p *Program) {
	warnMissing(v.Child("directory"), p.Directory)
	for _, path := range p.EnvironmentFiles {
		if !strings.HasPrefix(path, environment.Optional) {
			warnMissing(v.Child("environment_file"), path)
		}
	}
	warnMixed(v, p)
	hooks := v.Child("hooks")
	warnNoCommand(v.Child("command"), p, p.Command)
	warnNoCommand(v.Child("reload").Child("preflight"), p, p.Reload.Preflight)
	warnNoCommand(v.Child("ready").Child("command"), p, p.Ready.Command)
	warnNoCommand(v.Child("health").Child("command"), p, p.Health.Command)
	warnNoCommand(hooks.Child("after_reload"), p, p.Hooks.AfterReload)
	warnNoCommand(hooks.Child("reload_failed"), p, p.Hooks.ReloadFailed)
	warnNoCommand(hooks.Child("worker_crashed"), p, p.Hooks.WorkerCrashed)
}

func warnMissing(v document.Value, path string) {
	if path == "" {
		return
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		v.Warn("there is no "+path, "it must exist when a generation starts")
	}
}

// warnNoCommand warns of a command that could not be executed now.
func warnNoCommand(v document.Value, p *Program, argv []string) {
	if len(argv) == 0 || strings.Contains(argv[0], "{") {
		return
	}
	name := argv[0]
	if strings.Contains(name, "/") {
		path := document.Absolute(p.Directory, name)
		warnMissing(v, path)
		if info, err := os.Stat(path); err == nil && !isExecutable(info) {
			v.Warn(path+" cannot be executed", "chmod +x %s", path)
		}
		return
	}
	if path, ok := p.searchPath(); ok && !inPath(path, p.Directory, name) {
		v.Warn(fmt.Sprintf("there is no %s in PATH, which is %q", name, path),
			"it must exist when a generation starts; write its whole path, or set PATH in environment")
	}
}

// Environments returns an error for each program whose environment files or folders exist and would be refused at a
// start.
func (c *Config) Environments() (problems []document.Problem) {
	for i := range c.Programs {
		p := &c.Programs[i]
		_, err := environment.Read(p.EnvironmentFiles)
		if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue // what does not exist yet has a warning; the user of `check` may not be that of supervisord
		}
		problems = append(problems, document.Problem{
			File: p.File, Position: document.Position{Line: p.Line}, Key: document.Key("program", p.Name), What: err.Error(),
			Remedy: "no generation of the program starts with it",
		})
	}
	return problems
}

// searchPath returns the PATH of the workers of p; false: its files cannot be read now. The PATH of the user of `check`
// stands for that of supervisord.
func (p *Program) searchPath() (string, bool) {
	variables := map[string]string{}
	if own, ok := os.LookupEnv("PATH"); ok {
		variables["PATH"] = own
	}
	if configured, ok := p.Environment["PATH"]; ok {
		variables["PATH"] = configured
	}
	fromFiles, err := environment.Read(p.EnvironmentFiles)
	fromFiles.Apply(variables)
	path, ok := variables["PATH"]
	if !ok {
		path = spawn.DefaultPath
	}
	return path, err == nil
}

// inPath reports whether a command is in one of the directories of path. A directory that cannot be read counts,
// because workers may be able to read it.
func inPath(path, directory, name string) bool {
	for dir := range strings.SplitSeq(path, ":") {
		info, err := os.Stat(filepath.Join(document.Absolute(directory, dir), name))
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

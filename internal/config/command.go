package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
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

// refusedEnvironment says why environment files or folders that exist would be refused at a start; "": they are not.
func (p *Program) refusedEnvironment() string {
	_, err := environment.Read(p.EnvironmentFiles)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "" // what does not exist yet has a warning; the user of `check` may not be that of supervisord
	}
	return err.Error()
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

// unexecutable says that the user of p may not execute the command, or its interpreter (#!); "": that is not known. It
// asks the kernel as that user, so it needs root.
func (p *Program) unexecutable() (what, remedy string) {
	if p.User == "" || os.Geteuid() != 0 {
		return "", ""
	}
	account, err := proc.LookupAccount(p.User)
	if err != nil {
		return "", "" // a number without an account: its groups are not known
	}
	if group, err := proc.GID(p.Group); err == nil && p.Group != "" {
		account.GID = group
	}
	command := p.executable(p.Command[0])
	files := []string{command, p.executable(interpreterOf(command))}
	return as(account, func() string { return barred(account.Name, files) }),
		"no generation starts with it: let " + account.Name + " execute it, or install it where everybody can"
}

// as calls ask in a thread that has the rights of an account for files, and that ends afterwards.
func as(account proc.Account, ask func() string) string {
	answer := make(chan string)
	go func() {
		foreign.OwnThread()
		groups := append(account.Groups, account.GID)
		_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
		// takes the capabilities for files, too
		if !proc.SetFileUser(int(account.UID), int(account.GID)) || errno != 0 {
			answer <- ""
			return
		}
		answer <- ask()
	}()
	return <-answer
}

// barred says which of a command and its interpreter the caller, of this name, may not execute; "": neither.
func barred(user string, files []string) string {
	for i, file := range files {
		if file == "" || unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS) != unix.EACCES {
			continue
		}
		what := fmt.Sprintf("%s may not execute %s", user, file)
		if i > 0 {
			what += ", the interpreter of " + files[0]
		}
		return what
	}
	return ""
}

// executable is the path of a command; "": not known.
func (p *Program) executable(name string) string {
	switch {
	case name == "", strings.Contains(name, "{"):
		return ""
	case strings.Contains(name, "/"):
		return document.Absolute(p.Directory, name)
	}
	search, _ := p.searchPath()
	for dir := range strings.SplitSeq(search, ":") {
		path := filepath.Join(document.Absolute(p.Directory, dir), name)
		if unix.Access(path, unix.X_OK) == nil { // access(2) asks as the real user: root finds what there is
			return path
		}
	}
	return ""
}

// interpreterOf returns what the first line of a script names: a path, or a name after env; "": nothing.
func interpreterOf(path string) string {
	f, err := foreign.OpenRegular(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := f.Read(head)
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	rest, is := strings.CutPrefix(string(line), "#!")
	words := strings.Fields(rest)
	switch {
	case !is || len(words) == 0:
		return ""
	case filepath.Base(words[0]) == "env" && len(words) > 1 && !strings.HasPrefix(words[1], "-") &&
		!strings.Contains(words[1], "="):
		return words[1]
	}
	return words[0]
}

// wrapped says what it costs that the command starts the server as a child, which works; "": it does not.
func (p *Program) wrapped() (what, remedy string) {
	wrapper, instead := p.wrapper()
	if wrapper == "" {
		return "", ""
	}
	what = wrapper + " stays as the worker, and the server is its child: the exit status and `supervisord signal` are " +
		"those of " + wrapper
	if len(p.Listen) > 0 {
		what += "; no inherited socket reaches the server (LISTEN_PID is not its own), only one that it opens itself"
	}
	return what, "write " + instead
}

// wrappers are programs that stay as the parent of another one: with this word in the command, or always.
var wrappers = []struct{ names, word, instead string }{
	{"npm npx pnpm pnpx yarn bunx", "", `the server's own command, such as command = ["node", "server.js"]`},
	{"bun", "run", `the server's own command, such as command = ["bun", "server.ts"]`},
	{"uv pdm hatch", "run", `the program in the virtual environment, such as command = [".venv/bin/gunicorn"]`},
	{"go", "run", "the path of a program that a deploy builds with `go build`"},
	{"sudo su runuser doas", "", `user = "NAME", and the server's own command`},
}

// wrapper returns the wrapper in the command of p and what to write instead; "": there is none.
func (p *Program) wrapper() (name, instead string) {
	name = filepath.Base(p.Command[0])
	if len(p.Command) > 2 && slices.Contains([]string{"sh", "dash", "ash"}, name) && strings.HasSuffix(p.Command[1], "c") {
		better := document.ExecLast(p.Command[2])
		is, _ := filepath.EvalSymlinks(p.executable(p.Command[0]))
		if better == p.Command[2] || filepath.Base(is) == "bash" { // bash replaces itself by its last command
			return "", ""
		}
		words := slices.Clone([]string(p.Command))
		words[2] = better
		return "the shell", "command = " + document.TOML(words)
	}
	for _, w := range wrappers {
		if slices.Contains(strings.Fields(w.names), name) && (w.word == "" || slices.Contains(p.Command, w.word)) {
			return name, w.instead
		}
	}
	return "", ""
}

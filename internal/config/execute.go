package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/proc"
)

// Unexecutable returns a warning for each command that the user of its program may not execute, or whose interpreter
// (#!) that user may not. It asks the kernel as that user, so it needs root; otherwise it knows nothing of another
// user.
func (c *Config) Unexecutable() (warnings []document.Problem) {
	for i := range c.Programs {
		p := &c.Programs[i]
		if p.User == "" || os.Geteuid() != 0 {
			continue
		}
		account, err := proc.LookupAccount(p.User)
		if err != nil {
			continue // a number without an account: its groups are not known
		}
		if group, err := proc.GID(p.Group); err == nil && p.Group != "" {
			account.GID = group
		}
		files := p.executed()
		if what := as(account, func() string { return barred(account.Name, files) }); what != "" {
			warnings = append(warnings, document.Problem{File: p.File, Position: p.commandPosition, Severity: document.Warning,
				Key: document.Key("program", p.Name) + ".command", What: what,
				Remedy: "no generation starts with it: let " + account.Name + " execute it, or install it where everybody can"})
		}
	}
	return warnings
}

// as calls ask in a thread that has the rights of an account for files, and that ends afterwards.
func as(account proc.Account, ask func() string) string {
	answer := make(chan string)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		groups := append(account.Groups, account.GID)
		_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
		_ = unix.Setfsgid(int(account.GID))
		_ = unix.Setfsuid(int(account.UID)) // takes the capabilities for files, too
		if is, _ := unix.SetfsuidRetUid(-1); errno != 0 || is != int(account.UID) {
			answer <- ""
			return
		}
		answer <- ask()
	}()
	return <-answer
}

// executed is a file that is executed when a worker starts.
type executed struct {
	path   string
	script bool // its interpreter must read it
}

// executed returns the command, and if that is a script its interpreter, which may be a script, too.
func (p *Program) executed() (files []executed) {
	for name := p.Command[0]; name != "" && len(files) < 5; {
		path := p.executable(name)
		if path == "" {
			break
		}
		name = interpreterOf(path)
		files = append(files, executed{path, name != ""})
	}
	return files
}

// barred says which of these files the caller, of this name, may not execute; "": none.
func barred(user string, files []executed) string {
	for i, file := range files {
		verb, at := "execute", barrier(file.path, unix.X_OK)
		if at == "" && file.script {
			verb, at = "read", barrier(file.path, unix.R_OK)
		}
		if at == "" {
			continue
		}
		what := fmt.Sprintf("%s may not %s %s", user, verb, file.path)
		if i > 0 {
			what += ", the interpreter of " + files[i-1].path
		}
		if at != file.path {
			what += ": " + at + " is closed to that user"
		}
		return what
	}
	return ""
}

// executable is the path of a command; "": not known.
func (p *Program) executable(name string) string {
	switch {
	case strings.Contains(name, "{"):
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

// interpreterOf returns what the first line of a script names: a path, or a name after env. It reads as the caller; "":
// nothing.
func interpreterOf(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
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

// barrier returns the first folder on the way to a file, over its links, that the caller may not enter, or the file
// itself if that is what the caller may not use so; "": there is none.
func barrier(path string, mode uint32) string {
	denied := func(path string, mode uint32) bool {
		return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS) == unix.EACCES
	}
	if !denied(path, mode) {
		return ""
	}
	for range 40 { // links
		for at := 1; at < len(path); at++ {
			if path[at] == '/' && denied(path[:at], unix.X_OK) {
				return path[:at]
			}
		}
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		path = document.Absolute(filepath.Dir(path), target)
	}
	return path
}

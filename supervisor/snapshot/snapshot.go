// Package snapshot looks up what the processes of a generation are started with. All workers of the generation, and
// those that replace them, start from one snapshot: so after a crash no worker starts from a half-installed release.
//
// LookUp and OpenLogs wait for disks and the user database: the supervisor calls them on the goroutine that prepares a
// generation. From then on nothing changes a Snapshot, so the loop, the record and commands of hooks share it; Worker,
// Preflight, Command and Probe only compute, and copy what they extend.
package snapshot

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/spawn"
)

// Snapshot is what was looked up for a generation when it began. The next supervisord keeps using it, as it stands in
// the record; only the log files are opened anew (UseLogs). The Snapshot owns these; who forgets the generation closes
// them.
type Snapshot struct {
	Directory      config.Word // symlinks resolved
	Environment    config.Words
	Credential     *spawn.Credential
	Stdout, Stderr output.Destination
	Bind           bool   // bind(2) of the workers is answered
	Unbound        string `json:",omitempty"` // why not, and what to write; "": it is, or they have no listeners
	files          []*output.LogFile
}

// LookUp looks up everything except the log files. Files and the user database may be slow.
func LookUp(c *config.Program) (*Snapshot, error) {
	s := &Snapshot{}
	directory, err := filepath.EvalSymlinks(c.Directory)
	if s.Directory = config.Word(directory); err != nil {
		return s, fmt.Errorf("cannot resolve directory: %w", err)
	}
	var who *proc.Account
	if s.Credential, who, err = credential(c.User, c.Group); err != nil {
		return s, err
	}
	if s.Environment, err = mergedEnvironment(c, who, directory); err != nil {
		return s, err
	}
	if len(c.Listen) == 0 {
		return s, nil
	}
	if s.Unbound, err = c.Bind.Unanswered(c.Limits.NoNewPrivileges); err != nil {
		return s, fmt.Errorf("bind = \"on\" is impossible here: %w", err)
	}
	s.Bind = s.Unbound == ""
	return s, nil
}

// OpenLogs opens the log files. log, which may be nil, is what the captured streams go into.
func (s *Snapshot) OpenLogs(ctx context.Context, c *config.Program, log *output.Log, e *output.LogErrors) error {
	err := s.output(c, func(spec output.LogFileSpec) (*output.LogFile, error) { return output.OpenLogFile(ctx, spec, e) })
	if err == nil && log != nil {
		err = log.SetFile(ctx, s.LogFile(c))
	}
	return err
}

// UseLogs continues with the log files of the previous image. If a file cannot be opened, the next line tries again.
func (s *Snapshot) UseLogs(c *config.Program, e *output.LogErrors) {
	s.output(c, func(spec output.LogFileSpec) (*output.LogFile, error) { //nolint:errcheck // it cannot fail
		return output.UseLogFile(spec, nil, e), nil
	})
}

// Files returns the log files that are open. s may be nil.
func (s *Snapshot) Files() []*output.LogFile {
	if s == nil {
		return nil
	}
	return s.files
}

// LogFile is the file of captured output. It may belong to the workers' user.
func (s *Snapshot) LogFile(c *config.Program) output.LogFileSpec {
	return output.LogFileSpec{Path: c.Log.File, MaxSize: c.Log.MaxSize, MaxFiles: c.Log.MaxFiles, Owner: s.owner()}
}

func (s *Snapshot) owner() int {
	if s.Credential == nil {
		return os.Geteuid()
	}
	return int(s.Credential.UID)
}

// output sets the destinations of the streams and opens files with open. Both streams share one file if they name one
// path.
func (s *Snapshot) output(c *config.Program, open func(output.LogFileSpec) (*output.LogFile, error)) error {
	opened := map[string]*output.LogFile{}
	destination := func(o config.Output) (output.Destination, error) {
		if o.Kind != output.ToFile {
			return output.Destination{Kind: o.Kind}, nil
		}
		if opened[o.Path] == nil {
			f, err := open(output.LogFileSpec{Path: o.Path, Owner: s.owner()})
			if err != nil {
				return output.Destination{}, err
			}
			opened[o.Path] = f
			s.files = append(s.files, f)
		}
		return output.Destination{Kind: output.ToFile, File: opened[o.Path]}, nil
	}
	var err error
	if s.Stdout, err = destination(c.Stdout); err == nil {
		s.Stderr, err = destination(c.Stderr)
	}
	return err
}

// mergedEnvironment merges the supervisor's own variables, those of the user, and those of the configuration:
// environment, environment_file, the later over the earlier. PWD is the directory, as after cd in a shell: the
// supervisor's own may be one that the worker's user cannot look into, and Puma, for one, ends then.
func mergedEnvironment(c *config.Program, who *proc.Account, directory string) ([]string, error) {
	vars := map[string]string{}
	for _, kv := range worker.Inheritable(os.Environ()) {
		if k, v, ok := strings.Cut(kv, "="); ok && !reserved.ForWorkers(k) {
			vars[k] = v
		}
	}
	vars["PWD"] = directory
	if who != nil {
		vars["USER"], vars["LOGNAME"], vars["HOME"] = who.Name, who.Name, who.Home
	}
	fill := fdPlaceholders(c)
	for name, value := range c.Environment {
		vars[name] = fillIn(fill, value)
	}
	fromFiles, err := environment.Read(c.EnvironmentFiles)
	if err != nil {
		return nil, err
	}
	fromFiles.Apply(vars)
	var list []string
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		value, _ := c.InRelease(vars[k], directory)
		list = append(list, k+"="+value)
	}
	return list, nil
}

// credential looks up who a worker runs as, supplementary groups included. Without a user and a group it is nil: the
// supervisor's user.
func credential(userName, groupName string) (*spawn.Credential, *proc.Account, error) {
	if userName == "" && groupName == "" {
		return nil, nil, nil
	}
	cred := &spawn.Credential{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	var who *proc.Account
	if userName != "" {
		account, err := proc.LookupAccount(userName)
		if err != nil {
			return nil, nil, err
		}
		who = &account
		cred.UID, cred.GID, cred.Groups = account.UID, account.GID, account.Groups
	}
	if groupName != "" {
		gid, err := proc.GID(groupName)
		if err != nil {
			return nil, nil, err
		}
		cred.GID = gid
	}
	return cred, who, nil
}

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/proc"
	"example.org/supervisord/internal/reserved"
	"example.org/supervisord/supervisor/handover"
	"example.org/supervisord/supervisor/program"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/spawn"
)

// snapshot is a Snapshot with the log files that it needs.
type snapshot struct {
	handover.Snapshot
	files []*output.LogFile
}

// prepare resolves the snapshot of a generation and runs its preflight, off the loop: files, the user database and the preflight
// may all be slow.
func (p *runner) prepare(cg *program.Generation) {
	ctx, cancel := context.WithCancel(p.s.ctx)
	g := &resources{number: cg.Number, listeners: p.listeners, abandon: cancel, log: p.capture.of(cg.Config)}
	var keys []string
	for _, l := range g.listeners {
		keys = append(keys, l.Key())
	}
	g.claims = p.s.table.Hold(keys)
	p.generations[cg.Number] = g
	p.s.later(func() func() {
		defer cancel()
		snap, failure := p.gather(ctx, cg.Config, g.log)
		return func() { p.prepared(g, snap, failure) }
	})
}

func (p *runner) prepared(g *resources, snap *snapshot, failure *program.Failure) {
	g.snapshot = snap
	if p.generations[g.number] != g { // gone meanwhile
		for _, f := range g.files() {
			p.closeLog(f)
		}
		return
	}
	p.step(program.Prepared{Generation: g.number, Failure: failure})
}

// gather makes the snapshot of a generation, and runs its preflight. It is not for the loop.
func (p *runner) gather(ctx context.Context, c *config.Program, log *output.Log) (*snapshot, *program.Failure) {
	snap, err := bounded(ctx, p.lookups, "looking up directory, user and environment", func() (*snapshot, error) { return lookUp(c) })
	if snap == nil {
		snap = &snapshot{}
	}
	if err == nil {
		err = snap.open(ctx, c, log, p.capture.errors)
	}
	if err != nil {
		return snap, &program.Failure{Step: program.StepPrepare, Reason: err.Error()}
	}
	if len(c.Reload.Preflight) == 0 {
		return snap, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Reload.PreflightTimeout, fmt.Errorf("not finished within %s", c.Reload.PreflightTimeout))
	defer cancel()
	spec := snap.spec(c)
	spec.Command = fillAll(fdPlaceholders(c), c.Reload.Preflight)
	if log != nil {
		spec.Captured = log.Of(0)
	}
	if err := p.s.Launcher.Run(ctx, spec); err != nil {
		return snap, preflightFailure(err)
	}
	return snap, nil
}

func preflightFailure(err error) *program.Failure {
	if e, ok := errors.AsType[*worker.RunError](err); ok {
		return &program.Failure{Step: program.StepPreflight, Reason: e.Reason(), Tail: e.Exited.Tail}
	}
	return &program.Failure{Step: program.StepPreflight, Reason: err.Error()}
}

// lookUp finds out everything but the log files.
func lookUp(c *config.Program) (*snapshot, error) {
	snap := &snapshot{}
	var err error
	if snap.Directory, err = filepath.EvalSymlinks(c.Directory); err != nil {
		return snap, fmt.Errorf("cannot resolve directory: %w", err)
	}
	var who *proc.Account
	if snap.Credential, who, err = credential(c.User, c.Group); err != nil {
		return snap, err
	}
	snap.Environment, err = environment(c, who, snap.Directory)
	return snap, err
}

// open opens the log files.
func (snap *snapshot) open(ctx context.Context, c *config.Program, log *output.Log, e *output.LogErrors) error {
	ctx, cancel := within(ctx, logOpenTimeout)
	defer cancel()
	err := snap.output(c, func(s output.LogFileSpec) (*output.LogFile, error) { return output.OpenLogFile(ctx, s, e) })
	if err == nil && log != nil {
		err = log.SetFile(ctx, snap.logFileSpec(c.Log))
	}
	return err
}

// output says where the streams go, with files that open opens; both streams share one file when they name one path.
func (snap *snapshot) output(c *config.Program, open func(output.LogFileSpec) (*output.LogFile, error)) error {
	opened := map[string]*output.LogFile{}
	output := func(o config.Output) (output.Destination, error) {
		if o.Kind != output.ToFile {
			return output.Destination{Kind: o.Kind}, nil
		}
		if opened[o.Path] == nil {
			f, err := open(output.LogFileSpec{Path: o.Path, Owner: snap.owner()})
			if err != nil {
				return output.Destination{}, err
			}
			opened[o.Path] = f
			snap.files = append(snap.files, f)
		}
		return output.Destination{Kind: output.ToFile, File: opened[o.Path]}, nil
	}
	var err error
	if snap.Stdout, err = output(c.Stdout); err == nil {
		snap.Stderr, err = output(c.Stderr)
	}
	return err
}

// spec is what every process of this generation has in common.
func (snap *snapshot) spec(c *config.Program) worker.Spec {
	return worker.Spec{
		Directory: snap.Directory, Environment: snap.Environment, Credential: snap.Credential,
		Stdout: snap.Stdout, Stderr: snap.Stderr, Limits: c.Limits,
	}
}

// environment merges the supervisor's own variables, those of the user, and those of the configuration:
// environment, environment_file, environment_dir, the later over the earlier. PWD is the directory, as after cd in a shell: that
// of who started the supervisor may be one that the worker's user cannot look into, and Puma for one ends then.
func environment(c *config.Program, who *proc.Account, directory string) ([]string, error) {
	vars := map[string]string{}
	for _, kv := range worker.Inheritable(os.Environ()) {
		if k, v, ok := strings.Cut(kv, "="); ok && !reserved.ForWorkers(k, c.Dialects) {
			vars[k] = v
		}
	}
	vars["PWD"] = directory
	if who != nil {
		vars["USER"], vars["LOGNAME"], vars["HOME"] = who.Name, who.Name, who.Home
	}
	fill := fdPlaceholders(c)
	for name, value := range c.Environment {
		vars[name] = fill.Replace(value)
	}
	fromFiles, err := config.ReadEnvironment(c.EnvironmentFiles, c.EnvironmentDir, c.Dialects)
	if err != nil {
		return nil, err
	}
	fromFiles.Apply(vars)
	var list []string
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		list = append(list, k+"="+vars[k])
	}
	return list, nil
}

// credential looks up who a worker runs as, supplementary groups included. Without a user and a group it is nil: as the supervisor.
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

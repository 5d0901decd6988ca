// Package spawn makes a process and lets it become a command, in two steps: the caller forks its own binary again as a shim (RunShim), in
// its own process group and with its descriptors in place. The shim arranges what cannot be done from outside (signal dispositions and
// mask, limits, user, capabilities, directory, LISTEN_PID) and then executes the command. It reports which step failed, and why, over a pipe
// that the exec closes.
package spawn

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Closed stands for a descriptor that the command does not have, in Execution.Files.
const Closed = -1

// DefaultPath is where a command without a slash is looked for if its environment has no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Execution is what a process becomes.
type Execution struct {
	Argv        []string
	Environment []string // complete but for LISTEN_PID, which is added beside LISTEN_FDS, and WATCHDOG_PID beside WATCHDOG_USEC
	Directory   string   // "": the caller's
	Files       []int    // the command's descriptors, by number, at least 0 to 2
	Group       string   // the directory of its control group; "": it stays in the caller's
	Credential  *Credential
	Limits      Limits
}

// Credential is whom a command runs as.
type Credential struct {
	UID, GID uint32
	Groups   []uint32 // supplementary
}

// unchanged is -1, with which setresuid(2) succeeds and changes nothing.
const unchanged = 1<<32 - 1

// Owner returns the user who must own the files of the command; -1: the caller's own user.
func (c *Credential) Owner() int {
	if c == nil || c.UID == unchanged {
		return -1
	}
	return int(c.UID)
}

// Limits are process attributes that are set between fork and exec.
type Limits struct {
	RLimits             map[string]uint64 // soft limits by name ("nofile", "core", "nproc", …); RLimitInfinity: unlimited
	Umask               *int
	Nice                *int
	OOMScoreAdj         *int
	NoNewPrivileges     bool
	IgnoreSIGPIPE       bool
	AmbientCapabilities []string // "CAP_NET_BIND_SERVICE", any case, prefix optional
}

// RLimitInfinity is "unlimited" (RLIM_INFINITY).
const RLimitInfinity = ^uint64(0)

// Launch is a command that is ready to be forked.
type Launch struct {
	Report int // read what the shim says here, until its end, for ParseReport. The caller closes it
	files  []int
	argv   []string
	theirs []int // the parameters, and the shim's end of Report
}

// Prepare opens what a fork of c needs. The caller must Close it.
func Prepare(c Execution) (*Launch, *StepError) {
	p := parameters{Group: c.Group, Keep: len(c.Files), Directory: []byte(c.Directory), Credential: c.Credential, Limits: c.Limits}
	err := errors.New("no command was given")
	if len(c.Argv) > 0 {
		p.Command, err = pack(c.Argv)
	}
	if err == nil {
		p.Environment, err = pack(c.Environment)
	}
	if err != nil {
		return nil, Failed(StepExec, err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		return nil, Failed(stepFork, err)
	}
	memfd, err := Sealed("parameters", data)
	if err != nil {
		return nil, Failed(stepFork, err)
	}
	read, write, err := Pipe()
	if err != nil {
		unix.Close(memfd)
		return nil, Failed(stepFork, err)
	}
	files := append(append([]int(nil), c.Files...), memfd, write)
	return &Launch{
		Report: read, files: files, theirs: []int{memfd, write},
		argv: []string{shimName, filepath.Base(c.Argv[0]), strconv.Itoa(len(files))},
	}, nil
}

// Close closes everything but Report. It may be called twice.
func (p *Launch) Close() {
	for _, fd := range p.theirs {
		unix.Close(fd)
	}
	p.theirs = nil
}

// Fork starts the process, in the control group behind the descriptor group if that is not -1. Where clone3(2) is not allowed, as under
// RestrictNamespaces= of systemd, the shim moves itself into the group. pidfd is -1 on kernels without pidfds.
func (p *Launch) Fork(group int) (pid, pidfd int, failure *StepError) {
	pidfd = -1
	attr := &syscall.ProcAttr{
		Env: []string{"GOMAXPROCS=1", "GOGC=off"}, // the shim's own: it lives for a millisecond
		Sys: &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd},
	}
	for _, fd := range p.files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	var err error
	if group >= 0 {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, group
		if pid, err = syscall.ForkExec("/proc/self/exe", p.argv, attr); err == nil {
			return pid, pidfd, nil
		}
		attr.Sys.UseCgroupFD = false
	}
	pid, err = syscall.ForkExec("/proc/self/exe", p.argv, attr)
	if err != nil {
		return 0, -1, Failed(stepFork, fmt.Errorf("the supervisor's own binary, /proc/self/exe: %w", err))
	}
	return pid, pidfd, nil
}

// ParseReport reads a whole report. The command runs only if the report says that the exec was tried, and nothing after that. If it says
// neither this nor what failed, the shim was killed.
func ParseReport(report []byte) (runs bool, failure *StepError) {
	if len(report) > 0 && report[0] == aboutToExec {
		if report = report[1:]; len(report) == 0 {
			return true, nil
		}
	}
	failure = new(StepError)
	if err := json.Unmarshal(report, failure); err != nil || failure.Step == "" {
		return false, nil
	}
	return false, failure
}

// parameters are what the shim has to do. Strings travel as bytes: they need not be UTF-8.
type parameters struct {
	Command, Environment []byte // each string ends with a NUL
	Directory            []byte
	Group                string
	Keep                 int // the first descriptor that the command must not see
	Credential           *Credential
	Limits               Limits
}

func pack(list []string) ([]byte, error) {
	var packed []byte
	for _, s := range list {
		if strings.IndexByte(s, 0) >= 0 {
			return nil, fmt.Errorf("%q contains a NUL byte: %w", s, syscall.EINVAL)
		}
		packed = append(append(packed, s...), 0)
	}
	return packed, nil
}

func unpack(packed []byte) []string {
	if len(packed) == 0 {
		return nil
	}
	return strings.Split(string(packed[:len(packed)-1]), "\x00")
}

// seals make a memfd immutable.
const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Sealed makes an immutable memfd that contains data of any size, to be read from its beginning.
func Sealed(name string, data []byte) (int, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, fmt.Errorf("cannot create a memfd: %w", err)
	}
	for at := 0; at < len(data) && err == nil; {
		var n int
		n, err = unix.Pwrite(fd, data[at:], int64(at))
		at += max(n, 0)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("cannot write to a memfd: %w", err)
	}
	return fd, nil
}

// Pipe makes a pipe whose reading end does not block; the writing end blocks, as programs expect.
func Pipe() (read, write int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("cannot make a pipe: %w", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return -1, -1, fmt.Errorf("cannot make a pipe: %w", err)
	}
	return p[0], p[1], nil
}

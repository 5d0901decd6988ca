package spawn

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/worker/spawn/before"
)

// rlimits by their names in configuration (getrlimit(2), lower case without RLIMIT_).
var rlimits = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA,
	"fsize": unix.RLIMIT_FSIZE, "memlock": unix.RLIMIT_MEMLOCK,
	"msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE, "nofile": unix.RLIMIT_NOFILE,
	"nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS, "rtprio": unix.RLIMIT_RTPRIO,
	"rttime": unix.RLIMIT_RTTIME, "sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
}

// RLimit returns the number of a resource limit, given its name in Limits.
func RLimit(name string) (number int, known bool) {
	number, known = rlimits[name]
	return number, known
}

// initialUsers is the user namespace of the machine itself, PROC_USER_INIT_INO in include/linux/proc_ns.h.
const initialUsers = "user:[4026531837]"

// AboveHard returns the hard limit that a soft one is above and that this thread may not raise; "": a process can be
// started with the soft limit. To raise a hard limit needs CAP_SYS_RESOURCE, which that of another user namespace is
// not (setrlimit(2)).
func AboveHard(name string, soft uint64) (hard string) {
	var have unix.Rlimit
	number, known := RLimit(name)
	if !known || unix.Getrlimit(number, &have) != nil || soft <= have.Max {
		return ""
	}
	users, err := os.Readlink("/proc/thread-self/ns/user")
	if proc.May(unix.CAP_SYS_RESOURCE) && (err != nil || users == initialUsers) {
		return ""
	}
	return limitText(have.Max)
}

// names returns the names of RLimits in the order in which they are set.
func (l *Limits) names() []string { return slices.Sorted(maps.Keys(l.RLimits)) }

// raiseHardLimits raises hard limits that are below the soft ones. It needs CAP_SYS_RESOURCE, so it comes before the
// user is set.
func (b *builder) raiseHardLimits() *StepError {
	b.step = codeLimits
	names := b.c.Limits.names()
	b.limits = room[unix.Rlimit](b.area, len(names))
	for i, name := range names {
		number, known := RLimit(name)
		if !known {
			return failed(codeLimits, fmt.Errorf("unknown limit %s", name))
		}
		var have unix.Rlimit
		if err := unix.Getrlimit(number, &have); err != nil {
			return failed(codeLimits, fmt.Errorf("%s: %w", name, err))
		}
		want := b.c.Limits.RLimits[name]
		b.limits[i] = unix.Rlimit{Cur: want, Max: max(want, have.Max)}
		if want > have.Max {
			b.limit(i, number).hint = hintHard
		}
	}
	return nil
}

// softLimits sets the limits themselves, late, because a small one could get in the way of the other steps.
func (b *builder) softLimits() *StepError {
	b.step = codeLimits
	if _, own := b.c.Limits.RLimits["nofile"]; !own {
		b.restoreFiles()
	}
	for i, name := range b.c.Limits.names() {
		number, _ := RLimit(name)
		b.limit(i, number)
	}
	return nil
}

// limit adds a prlimit(2) whose struct lies in the area.
func (b *builder) limit(i, number int) *call {
	c := b.call(unix.SYS_PRLIMIT64, 0, uintptr(number), uintptr(unsafe.Pointer(&b.limits[i])))
	c.index = uint16(i)
	return c
}

// restoreFiles sets the limit of open files to what it was before Go raised it, unless another process has changed it
// since.
func (b *builder) restoreFiles() {
	var have unix.Rlimit
	raised := unix.Rlimit{Cur: before.Files.Hard - 1, Max: before.Files.Hard}
	if before.Files.Soft < raised.Cur && unix.Getrlimit(unix.RLIMIT_NOFILE, &have) == nil && have == raised {
		b.call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&before.Files))).may = anyError
	}
}

func limitText(v uint64) string {
	if v == RLimitInfinity {
		return "unlimited"
	}
	return fmt.Sprint(v)
}

// capabilities are their names, without the prefix, in the order of their numbers (linux/capability.h).
var capabilities = strings.Fields(`
	CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
	NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
	SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP
	MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// Capability returns the number of a capability, given its name: "CAP_NET_BIND_SERVICE", in any case, with or without
// "CAP_".
func Capability(name string) (number int, known bool) {
	number = slices.Index(capabilities, strings.TrimPrefix(strings.ToUpper(name), "CAP_"))
	return number, number >= 0
}

// withRemedy adds to a refusal what causes it.
func withRemedy(what any, err error) error {
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		return fmt.Errorf("%v: %w (the supervisor does not run as root)", what, err)
	}
	return fmt.Errorf("%v: %w", what, err)
}

// groups sets the supplementary groups, unless they are right already: an ordinary user may not even set the same
// groups again.
func (b *builder) groups() {
	want := b.c.Credential.Groups
	if have, err := unix.Getgroups(); err == nil && sameGroups(have, want) {
		return
	}
	groups := room[uint32](b.area, len(want))
	copy(groups, want)
	b.step = codeGroups
	b.call(unix.SYS_SETGROUPS, uintptr(len(want)), address(groups))
}

// sameGroups compares sets: the kernel sorts the groups that it is given (setgroups(2)), and keeps duplicates.
func sameGroups(have []int, want []uint32) bool {
	a := slices.Clone(want)
	slices.Sort(a)
	b := make([]uint32, len(have))
	for i, g := range have {
		b[i] = uint32(g)
	}
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// identity sets groups, group and user. With ambient capabilities, the permitted set must survive that.
func (b *builder) identity() *StepError {
	who := b.c.Credential
	if who == nil {
		return nil
	}
	b.groups()
	uid, gid := uintptr(who.UID), uintptr(who.GID)
	if who.GID == unchanged {
		return failed(codeGroup, withRemedy(gid, unix.EINVAL))
	}
	b.step = codeGroup
	b.call(unix.SYS_SETRESGID, gid, gid, gid)
	if who.UID == unchanged {
		return failed(codeUser, withRemedy(uid, unix.EINVAL))
	}
	b.step = codeUser
	if len(b.c.Limits.AmbientCapabilities) > 0 {
		b.call(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1)
	}
	b.call(unix.SYS_SETRESUID, uid, uid, uid)
	return nil
}

// ambient sets the inheritable set to what was asked for, and raises it to ambient, so that the exec keeps it. The
// process has dropped by then the ambient capabilities that the supervisor's unit gave to it (AmbientCapabilities=).
func (b *builder) ambient() *StepError {
	p := b.p
	p.header.Version = unix.LINUX_CAPABILITY_VERSION_3
	header, caps := uintptr(unsafe.Pointer(&p.header)), uintptr(unsafe.Pointer(&p.caps))
	const all = 1<<16 - 1 // no index
	b.step = codeAmbient
	b.call(unix.SYS_CAPGET, header, caps).index = all
	var raise []uintptr
	for i, name := range b.c.Limits.AmbientCapabilities {
		n, known := Capability(name)
		if !known {
			return failed(codeAmbient, fmt.Errorf("unknown capability %s", name))
		}
		p.inheritable[n/32] |= 1 << (n % 32)
		raise = append(raise, uintptr(n))
		c := b.call(checkPermitted, uintptr(n))
		c.hint, c.index = hintLacks, uint16(i)
	}
	b.call(setInheritable)
	b.call(unix.SYS_CAPSET, header, caps).index = all
	for i, n := range raise {
		b.call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, n).index = uint16(i)
	}
	return nil
}

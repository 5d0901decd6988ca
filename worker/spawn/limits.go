package spawn

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

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
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return ""
	}
	users, err := os.Readlink("/proc/thread-self/ns/user")
	if data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0 && (err != nil || users == initialUsers) {
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
			return Failed(stepLimits, fmt.Errorf("unknown limit %s", name))
		}
		var have unix.Rlimit
		if err := unix.Getrlimit(number, &have); err != nil {
			return Failed(stepLimits, fmt.Errorf("%s: %w", name, err))
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

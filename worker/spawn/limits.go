package spawn

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// rlimits by their names in configuration (getrlimit(2), lower case without RLIMIT_).
var rlimits = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA,
	"fsize": unix.RLIMIT_FSIZE, "locks": unix.RLIMIT_LOCKS, "memlock": unix.RLIMIT_MEMLOCK,
	"msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE, "nofile": unix.RLIMIT_NOFILE,
	"nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS, "rtprio": unix.RLIMIT_RTPRIO,
	"rttime": unix.RLIMIT_RTTIME, "sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
}

// RLimit returns the number of a resource limit, given its name in Limits.
func RLimit(name string) (number int, known bool) {
	number, known = rlimits[name]
	return number, known
}

// raiseHardLimits raises hard limits that are below the soft ones. It needs CAP_SYS_RESOURCE, so it comes before the user is set.
func (s *shim) raiseHardLimits() error {
	for name, want := range s.Limits.RLimits {
		number, known := RLimit(name)
		if !known {
			return fmt.Errorf("unknown limit %s", name)
		}
		var limit unix.Rlimit
		err := unix.Getrlimit(number, &limit)
		if err == nil && want > limit.Max {
			hard := limit.Max
			limit.Max = want
			if err = unix.Setrlimit(number, &limit); err != nil {
				return fmt.Errorf("%s to %s, which is above the hard limit %s: %w", name, limitText(want), limitText(hard), err)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// softLimits sets the limits themselves, late, because a small one (address space, processes) could hit the shim. Setting nofile also keeps Go
// from restoring at the exec the limit that it had raised for itself.
func (s *shim) softLimits() error {
	for name, want := range s.Limits.RLimits {
		number, _ := RLimit(name)
		var limit unix.Rlimit
		err := unix.Getrlimit(number, &limit)
		if err == nil {
			limit.Cur = want
			err = unix.Setrlimit(number, &limit)
		}
		if err != nil {
			return fmt.Errorf("%s to %s: %w", name, limitText(want), err)
		}
	}
	return nil
}

func limitText(v uint64) string {
	if v == RLimitInfinity {
		return "unlimited"
	}
	return fmt.Sprint(v)
}

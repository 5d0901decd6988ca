package spawn

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capabilities by name, without the prefix (capabilities(7)).
var capabilities = map[string]int{
	"CHOWN": unix.CAP_CHOWN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH,
	"FOWNER": unix.CAP_FOWNER, "FSETID": unix.CAP_FSETID, "KILL": unix.CAP_KILL, "SETGID": unix.CAP_SETGID,
	"SETUID": unix.CAP_SETUID, "SETPCAP": unix.CAP_SETPCAP, "LINUX_IMMUTABLE": unix.CAP_LINUX_IMMUTABLE,
	"NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "NET_BROADCAST": unix.CAP_NET_BROADCAST, "NET_ADMIN": unix.CAP_NET_ADMIN,
	"NET_RAW": unix.CAP_NET_RAW, "IPC_LOCK": unix.CAP_IPC_LOCK, "IPC_OWNER": unix.CAP_IPC_OWNER,
	"SYS_MODULE": unix.CAP_SYS_MODULE, "SYS_RAWIO": unix.CAP_SYS_RAWIO, "SYS_CHROOT": unix.CAP_SYS_CHROOT,
	"SYS_PTRACE": unix.CAP_SYS_PTRACE, "SYS_PACCT": unix.CAP_SYS_PACCT, "SYS_ADMIN": unix.CAP_SYS_ADMIN,
	"SYS_BOOT": unix.CAP_SYS_BOOT, "SYS_NICE": unix.CAP_SYS_NICE, "SYS_RESOURCE": unix.CAP_SYS_RESOURCE,
	"SYS_TIME": unix.CAP_SYS_TIME, "SYS_TTY_CONFIG": unix.CAP_SYS_TTY_CONFIG, "MKNOD": unix.CAP_MKNOD,
	"LEASE": unix.CAP_LEASE, "AUDIT_WRITE": unix.CAP_AUDIT_WRITE, "AUDIT_CONTROL": unix.CAP_AUDIT_CONTROL,
	"SETFCAP": unix.CAP_SETFCAP, "MAC_OVERRIDE": unix.CAP_MAC_OVERRIDE, "MAC_ADMIN": unix.CAP_MAC_ADMIN,
	"SYSLOG": unix.CAP_SYSLOG, "WAKE_ALARM": unix.CAP_WAKE_ALARM, "BLOCK_SUSPEND": unix.CAP_BLOCK_SUSPEND,
	"AUDIT_READ": unix.CAP_AUDIT_READ, "PERFMON": unix.CAP_PERFMON, "BPF": unix.CAP_BPF,
	"CHECKPOINT_RESTORE": unix.CAP_CHECKPOINT_RESTORE,
}

// Capability returns the number of a capability, given its name: "CAP_NET_BIND_SERVICE", in any case, with or without "CAP_".
func Capability(name string) (number int, known bool) {
	number, known = capabilities[strings.TrimPrefix(strings.ToUpper(name), "CAP_")]
	return number, known
}

// withRemedy adds to a refusal what causes it.
func withRemedy(what any, err error) error {
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		return fmt.Errorf("%v: %w (the supervisor does not run as root)", what, err)
	}
	return fmt.Errorf("%v: %w", what, err)
}

// groups sets the supplementary groups, unless they are right already: an ordinary user may not even set the same groups again.
func (s *shim) groups() error {
	if s.Credential == nil {
		return nil
	}
	want := slices.Clone(s.Credential.Groups)
	have, err := unix.Getgroups()
	if err == nil && sameGroups(have, want) {
		return nil
	}
	var first unsafe.Pointer
	if len(want) > 0 {
		first = unsafe.Pointer(&want[0])
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(want)), uintptr(first), 0); e != 0 {
		return withRemedy(want, e)
	}
	return nil
}

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

func (s *shim) group() error {
	if s.Credential == nil {
		return nil
	}
	gid := uintptr(s.Credential.GID)
	if s.Credential.GID == unchanged {
		return withRemedy(gid, unix.EINVAL)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); e != 0 {
		return withRemedy(gid, e)
	}
	return nil
}

// user sets the user. With ambient capabilities, the permitted set must survive that.
func (s *shim) user() error {
	if s.Credential == nil {
		return nil
	}
	if len(s.Limits.AmbientCapabilities) > 0 {
		if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	uid := uintptr(s.Credential.UID)
	if s.Credential.UID == unchanged {
		return withRemedy(uid, unix.EINVAL)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); e != 0 {
		return withRemedy(uid, e)
	}
	return nil
}

// clearAmbient drops the capabilities that the supervisor's unit gave to it (AmbientCapabilities=), which every command would inherit.
func clearAmbient() error {
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}

// ambient sets the inheritable set to what was asked for, and raises it to ambient, so that the exec keeps it.
func (s *shim) ambient() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	for _, name := range s.Limits.AmbientCapabilities {
		n, known := Capability(name)
		if !known {
			return fmt.Errorf("unknown capability %s", name)
		}
		word := &data[n/32]
		if word.Permitted&(1<<(n%32)) == 0 {
			return fmt.Errorf("%s: %w (the supervisor does not have it)", name, unix.EPERM)
		}
		word.Inheritable |= 1 << (n % 32)
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return err
	}
	for _, name := range s.Limits.AmbientCapabilities {
		n, _ := Capability(name)
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(n), 0, 0); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

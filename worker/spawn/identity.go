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
	"NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "NET_BROADCAST": unix.CAP_NET_BROADCAST,
	"NET_ADMIN": unix.CAP_NET_ADMIN,
	"NET_RAW":   unix.CAP_NET_RAW, "IPC_LOCK": unix.CAP_IPC_LOCK, "IPC_OWNER": unix.CAP_IPC_OWNER,
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

// Capability returns the number of a capability, given its name: "CAP_NET_BIND_SERVICE", in any case, with or without
// "CAP_".
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
		return Failed(stepGroup, withRemedy(gid, unix.EINVAL))
	}
	b.step = codeGroup
	b.call(unix.SYS_SETRESGID, gid, gid, gid)
	if who.UID == unchanged {
		return Failed(stepUser, withRemedy(uid, unix.EINVAL))
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
			return Failed(stepAmbient, fmt.Errorf("unknown capability %s", name))
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

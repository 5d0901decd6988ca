package control

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// peer is who is at the other end of a connection, as the kernel noted it when it was made (SO_PEERCRED and SO_PEERGROUPS in
// unix(7)): nothing that the client says, and nothing that changes later.
type peer struct {
	PID    int
	UID    uint32
	Groups []uint32 // its own and the supplementary ones
}

// maxGroups is NGROUPS_MAX of Linux.
const maxGroups = 65536

func peerOf(c *net.UnixConn) (peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var p peer
	var failed error
	err = raw.Control(func(fd uintptr) { p, failed = peerOfFD(int(fd)) })
	return p, errors.Join(err, failed)
}

func peerOfFD(fd int) (peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return peer{}, os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return peer{}, os.NewSyscallError("getsockopt SO_PEERGROUPS", err)
	}
	return peer{PID: int(cred.Pid), UID: cred.Uid, Groups: append(groups, cred.Gid)}, nil
}

func peerGroups(fd int) ([]uint32, error) {
	for n := 64; ; n *= 2 {
		groups := make([]uint32, n)
		size := uint32(4 * n)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == unix.ERANGE && n < maxGroups:
			continue
		case errno != 0:
			return nil, errno
		}
		return groups[:size/4], nil
	}
}

// Access says who may do what.
type Access struct {
	Group string // name or number of the group that may change things, beside root and the supervisor's own user; "": none
	Read  bool   // everybody else may read
}

// rights is an Access that is looked up.
type rights struct {
	own   uint32
	group *uint32
	read  bool
}

func (a Access) lookUp() (rights, error) {
	r := rights{own: uint32(os.Geteuid()), read: a.Read}
	if a.Group == "" {
		return r, nil
	}
	gid, err := proc.GID(a.Group)
	if err != nil {
		return r, err
	}
	r.group = &gid
	return r, nil
}

func (r rights) mayChange(p peer) bool {
	return p.UID == 0 || p.UID == r.own || r.group != nil && slices.Contains(p.Groups, *r.group)
}

func (r rights) mayRead(p peer) bool { return r.read || r.mayChange(p) }

type clientKey struct{}

func withClient(ctx context.Context, c *client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// peerFrom returns who has made the connection of a request.
func peerFrom(ctx context.Context) (peer, bool) {
	c, ok := ctx.Value(clientKey{}).(*client)
	if !ok {
		return peer{}, false
	}
	return c.peer, true
}

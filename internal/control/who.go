package control

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// maxWho bounds the name of a user where it says who asked for something.
const maxWho = 64

// whoAsks says who is behind a request, as the kernel knows it: "alice (uid 1000, pid 4711)". Where somebody has become another user since
// the login, by sudo(8) for example, it says as whom: "root (uid 0, pid 4711, login alice)".
func whoAsks(ctx context.Context) string {
	c, ok := ctx.Value(clientKey{}).(*client)
	if !ok {
		return "unknown"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s (uid %d", userName(c.peer.UID), c.peer.UID)
	if c.peer.PID > 0 { // 0: it is in a PID namespace that cannot be seen from here
		fmt.Fprintf(&b, ", pid %d", c.peer.PID)
	}
	if uid, ok := c.login(); ok && uid != c.peer.UID {
		fmt.Fprintf(&b, ", login %s", userName(uid))
	}
	return b.String() + ")"
}

// login returns the user that the client's process has logged in as (loginuid in proc(5), audit(7)). The PID may be another process's by
// now; the pidfd of the connection (Linux 6.5) tells.
func (c *client) login() (uint32, bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	pidfd := -1
	err = raw.Control(func(fd uintptr) {
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			pidfd = n
		}
	})
	if err != nil || pidfd < 0 {
		return 0, false
	}
	defer unix.Close(pidfd)
	text, err := os.ReadFile(proc.Path(c.peer.PID, "loginuid"))
	if err != nil {
		return 0, false
	}
	ended, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	uid, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	return uint32(uid), err == nil && ended == 0 && bad == nil && uid != noLogin
}

// noLogin is the loginuid of a process that nobody has started by logging in.
const noLogin = 1<<32 - 1

// userName is the name of a user, or "user".
func userName(uid uint32) string {
	return printable(cmp.Or(proc.UserName(uid), "user"), maxWho)
}

// printable is a text as it can be shown on a terminal: at most so many bytes, without control characters.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
)

// maxDescriptors bounds what one look at connections may cost: about a microsecond for each.
const maxDescriptors = 100_000

// Why connections are not known.
var (
	ErrTooMany = fmt.Errorf("more than %d descriptors", maxDescriptors)
	ErrLate    = errors.New("counting takes too long")
)

// Query is the question how many connections some processes have.
type Query struct {
	PIDs      []int    // with their process groups and descendants
	Addresses []string // of the listeners, as the kernel gives them: "127.0.0.1:8080", "/run/web.sock", "@abstract"
}

// Count is the answer: how many are open, of those that came in on the listeners; or why that is not known.
type Count struct {
	Open int
	Err  error // fs.ErrPermission (wrapped), ErrTooMany, ErrLate, …
}

// Connections answers all the queries with one look at the sockets of each address and at the descriptors of each process; what is
// not answered by until (zero: no limit) has ErrLate. Looking into a process needs what ptrace(2) calls read access: its user, or
// CAP_SYS_PTRACE.
func (t *Table) Connections(queries []Query, until time.Time) []Count {
	c := counter{table: t, until: until, sockets: map[uint64]string{}, failed: map[string]error{}, link: make([]byte, 64)}
	for _, q := range queries {
		for _, address := range q.Addresses {
			c.find(address)
		}
	}
	counts := make([]Count, len(queries))
	for i, q := range queries {
		counts[i] = c.count(q)
	}
	return counts
}

// counter is one look at connections.
type counter struct {
	table   *Table
	until   time.Time
	sockets map[uint64]string // the connections, by inode: what they came in on
	failed  map[string]error  // what was looked for; nil: it was found out
	seen    int               // descriptors
	link    []byte
}

// place is what of an address the kernel can be asked for: a port, whatever the IP address, or the name of a unix socket.
func place(address string) string {
	if strings.HasPrefix(address, "/") || strings.HasPrefix(address, "@") {
		return address
	}
	return address[strings.LastIndexByte(address, ':')+1:]
}

func (c *counter) find(address string) {
	at := place(address)
	if _, known := c.failed[at]; !known {
		c.failed[at] = inodes(address, func(inode uint64) {
			if inode != 0 { // 0: nobody has accepted it yet
				c.sockets[inode] = at
			}
		})
	}
}

func (c *counter) count(q Query) Count {
	wanted := map[string]bool{}
	for _, address := range q.Addresses {
		at := place(address)
		if err := c.failed[at]; err != nil {
			return Count{Err: err}
		}
		wanted[at] = true
	}
	held := map[uint64]bool{} // processes that fork share them
	if len(c.sockets) == 0 || len(wanted) == 0 {
		return Count{}
	}
	for _, pid := range c.table.Family(q.PIDs...) {
		err := c.look(pid, func(inode uint64) {
			if wanted[c.sockets[inode]] {
				held[inode] = true
			}
		})
		if err != nil {
			return Count{Err: err}
		}
	}
	return Count{Open: len(held)}
}

// look sees the inodes of the sockets that a process has open. One that has gone has none.
func (c *counter) look(pid int, see func(inode uint64)) error {
	switch {
	case c.seen > maxDescriptors:
		return ErrTooMany
	case !c.until.IsZero() && time.Now().After(c.until):
		return ErrLate
	}
	dir, err := os.Open(proc.Path(pid, "fd"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return denied(pid, err)
	}
	defer dir.Close()                                //nolint:errcheck // it was only read
	names, _ := dir.Readdirnames(maxDescriptors + 1) // an error: it has gone, or there are no more
	c.seen += len(names)
	for _, name := range names {
		n, err := unix.Readlinkat(int(dir.Fd()), name, c.link)
		if errors.Is(err, fs.ErrPermission) {
			return denied(pid, err)
		}
		if inode, isSocket := proc.SocketInode(string(c.link[:max(n, 0)])); isSocket {
			see(inode)
		}
	}
	return nil
}

func denied(pid int, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("cannot look into process %d: %w: another user's takes CAP_SYS_PTRACE", pid, fs.ErrPermission)
	}
	return err
}

func inodes(address string, see func(inode uint64)) error {
	if name, abstract := strings.CutPrefix(address, "@"); abstract {
		return unixInodes("\x00"+name, see)
	}
	if strings.HasPrefix(address, "/") {
		return unixInodes(address, see)
	}
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return err
	}
	return tcpInodes(uint16(port), see)
}

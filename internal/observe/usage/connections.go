package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/diag"
)

// maxDescriptors bounds the cost of counting connections: about a microsecond for each descriptor.
const maxDescriptors = 100_000

// Why connections are not known.
var (
	errTooMany = fmt.Errorf("more than %d descriptors", maxDescriptors)
	errLate    = errors.New("counting takes too long")
)

// query asks how many connections some processes have.
type query struct {
	PIDs      []int    // with their process groups and descendants
	Addresses []string // of the listeners, as the kernel gives them: "127.0.0.1:8080", "/run/web.sock", "@abstract"
}

// openCount is how many connections that were accepted from the listeners are open, or why that is not known.
type openCount struct {
	Open int
	Err  error // fs.ErrPermission (wrapped), errLate, …
}

// connections answers all queries with one look at the sockets of each address and at the descriptors of each process.
// After until (zero: no limit) it answers with errLate. To look into a process takes what ptrace(2) calls read access:
// see proc.AsOwner.
func (t *processTable) connections(queries []query, until time.Time) []openCount {
	c := counter{table: t, until: until, sockets: map[uint64]string{}, failed: map[string]error{}, link: make([]byte, 64)}
	for _, q := range queries {
		for _, address := range q.Addresses {
			c.find(key(address))
		}
	}
	counts := make([]openCount, len(queries))
	for i, q := range queries {
		counts[i].Open, counts[i].Err = c.count(q)
	}
	return counts
}

// counter is one look at connections.
type counter struct {
	table   *processTable
	until   time.Time
	sockets map[uint64]string // the key of each connection, by inode
	failed  map[string]error  // of each key that was looked for; nil: its connections are known
	seen    int               // descriptors
	link    []byte
}

// key returns the part of an address that the kernel can be asked for: a TCP port, for all IP addresses, or the name of
// a unix socket.
func key(address string) string {
	if strings.HasPrefix(address, "/") || strings.HasPrefix(address, "@") {
		return address
	}
	return address[strings.LastIndexByte(address, ':')+1:]
}

// find looks for the connections of a key, once.
func (c *counter) find(key string) {
	if _, known := c.failed[key]; known {
		return
	}
	see := func(inode uint64) {
		if inode != 0 { // 0: not accepted yet
			c.sockets[inode] = key
		}
	}
	port, err := strconv.ParseUint(key, 10, 16)
	switch {
	case err == nil:
		err = diag.TCPInodes(uint16(port), see)
	case strings.HasPrefix(key, "@"), strings.HasPrefix(key, "/"):
		err = diag.UnixInodes(key, see)
	}
	c.failed[key] = err
}

func (c *counter) count(q query) (int, error) {
	wanted := map[string]bool{}
	for _, address := range q.Addresses {
		if err := c.failed[key(address)]; err != nil {
			return 0, err
		}
		wanted[key(address)] = true
	}
	if len(c.sockets) == 0 || len(wanted) == 0 {
		return 0, nil
	}
	held := map[uint64]bool{} // processes that fork share them
	for _, pid := range c.table.family(q.PIDs) {
		var err error
		proc.AsOwner(pid, func() {
			err = c.look(pid, func(inode uint64) {
				if wanted[c.sockets[inode]] {
					held[inode] = true
				}
			})
		})
		if err != nil {
			return 0, err
		}
	}
	return len(held), nil
}

// look passes the inodes of the sockets that a process has open to see. A process that has ended has none.
func (c *counter) look(pid int, see func(inode uint64)) error {
	switch {
	case c.seen > maxDescriptors:
		return errTooMany
	case !c.until.IsZero() && time.Now().After(c.until):
		return errLate
	}
	dir, err := os.Open(proc.Path(pid, "fd"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return denied(pid, err)
	}
	defer dir.Close()                                //nolint:errcheck // it was only read
	names, _ := dir.Readdirnames(maxDescriptors + 1) // an error: it has ended, or there are no more
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
		return fmt.Errorf("cannot look into process %d: %w: it has changed its user itself, or forbids it "+
			"(PR_SET_DUMPABLE), so that supervisord needs CAP_SYS_PTRACE", pid, fs.ErrPermission)
	}
	return err
}

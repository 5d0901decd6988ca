package unixpath

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Place is where clients find a listening socket, as its supervisor has left it. Workers do not leave it alone: many
// servers remove the path of a socket that they inherited when they stop, and some change its mode. So a hidden hard
// link beside the path keeps the inode within reach (link(2)), and Repair puts the path back: clients find the same
// socket again, and its queue.
//
// The rule for what stands at the path instead: supervisord replaces only a socket on which nothing answers, and that
// has been there for a moment (a server that is about to listen has bound its socket already). A socket on which
// somebody answers stays, also if a worker of the program has bound it: such a worker accepts from its own socket and
// not from the inherited one, so clients would wait there forever. A file that is not a socket stays. Once either is
// gone, Repair puts the path back.
type Place struct {
	Path  string
	Inode Inode
	Permissions
}

// Permissions is to whom a socket belongs, and who may connect.
type Permissions struct {
	mode     uint32
	uid, gid uint32
	acl      string // system.posix_acl_access, acl(5); "": none
}

// ErrGone says that no link to the inode of a place is left: clients need another socket.
var ErrGone = errors.New("the socket has no name any more")

// Mark returns 16 digits that tell the inode from all others.
func (i Inode) Mark() string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(i.String())) // never fails
	return hex.EncodeToString(h.Sum(nil))
}

// link is the hidden name beside the path. No two inodes have the same, so it is nobody else's.
func (p Place) link() string {
	return filepath.Join(filepath.Dir(p.Path), "."+filepath.Base(p.Path)+"."+p.Inode.Mark())
}

// Keep makes the hidden link. Without it, on a file system that has none, Repair can only change what is still at the
// path.
func (p Place) Keep() {
	if !p.Inode.IsAt(p.link()) {
		_ = unix.Link(p.Path, p.link())
	}
}

// Remove removes the path, if it leads to the inode, and the hidden link.
func (p Place) Remove() {
	for _, name := range []string{p.Path, p.link()} {
		if p.Inode.IsAt(name) {
			_ = unix.Unlink(name) // a name that stays behind is stale, and the next start removes it
		}
	}
}

// Reachable reports whether clients may find the inode, or Repair may let them: false is certain.
func (p Place) Reachable() bool { return !p.Inode.Gone(p.Path) || !p.Inode.Gone(p.link()) }

// Found returns the inode that one of the names of a path has and that is accepted by is.
func Found(path string, is func(Inode) bool) (Inode, bool) {
	for _, name := range append([]string{path}, links(path)...) {
		if i, err := At(name); err == nil && is(i) {
			return i, true
		}
	}
	return Inode{}, false
}

// links lists the names beside path that look like hidden links.
func links(path string) (names []string) {
	pattern := regexp.MustCompile(`^\.` + regexp.QuoteMeta(filepath.Base(path)) + `\.[0-9a-f]{16}$`)
	entries, _ := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		if pattern.MatchString(e.Name()) {
			names = append(names, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return names
}

// removeStaleLinks removes hidden links of a path that the caller has claimed, on which nothing answers.
func removeStaleLinks(path string) {
	for _, name := range links(path) {
		_ = clearStale(name) // what is used stays
	}
}

// Repair puts the path back if it does not lead to the inode, and its mode, owner and ACL if they were changed. damage
// says what was wrong; "": nothing. A socket that is younger than youth may belong to a server that is about to listen.
// The error is ErrInUse (wrapped) if somebody else's socket is there or is about to be, and ErrGone if another socket
// is needed.
func (p Place) Repair(youth time.Duration) (damage string, err error) {
	there, err := At(p.Path)
	switch {
	case err == nil && there == p.Inode:
		p.Keep()
		return p.restoreAccess()
	case err == nil:
		damage = "something else was put at its path"
		err = p.clear(there, youth)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		damage, err = "its path was removed", nil
	}
	if err != nil {
		return damage, err
	}
	if !p.Inode.IsAt(p.link()) {
		return damage, ErrGone
	}
	if err := unix.Link(p.link(), p.Path); err != nil {
		return damage, err
	}
	_, err = p.restoreAccess()
	return damage, err
}

// clear removes what is at the path instead, if it is a socket that nobody uses.
func (p Place) clear(there Inode, youth time.Duration) error {
	if err := unused(p.Path); err != nil { // before a lock file is made beside it
		return err
	}
	if age := time.Since(time.Unix(0, there.born)); there.born != 0 && age >= 0 && age < youth {
		return &Remedied{ErrInUse, "nothing answers there, but it has just been bound: a process may be about to listen"}
	}
	release, err := Claim(p.Path)
	if err == nil {
		release()
	}
	return err
}

// SetAccess gives the inode its owner (-1: this process's) and its mode (0: 0777 less the umask).
func (p Place) SetAccess(mode fs.FileMode, uid, gid int) error {
	if uid < 0 {
		uid = os.Geteuid()
	}
	if gid < 0 {
		gid = os.Getegid()
	}
	if mode == 0 {
		mode = 0o777 &^ fs.FileMode(umask())
	}
	return p.open(func(name string) error {
		if err := unix.Chown(name, uid, gid); err != nil {
			return fmt.Errorf("change owner: %w", err)
		}
		return unix.Chmod(name, uint32(mode))
	})
}

// Note takes the access that the inode has now for that which it is to keep.
func (p *Place) Note() error {
	return p.open(func(name string) (err error) {
		p.Permissions, err = accessOf(name)
		return err
	})
}

func accessOf(name string) (a Permissions, err error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return a, err
	}
	a = Permissions{mode: st.Mode & 0o7777, uid: st.Uid, gid: st.Gid}
	list := make([]byte, longestACL)
	if n, err := unix.Getxattr(name, aclName, list); err == nil {
		a.acl = string(list[:n])
	}
	return a, nil
}

const (
	aclName    = "system.posix_acl_access"
	longestACL = 64 << 10 // no attribute is longer, xattr(7)
)

// restoreAccess gives the inode the access that it is to keep.
func (p Place) restoreAccess() (damage string, err error) {
	err = p.open(func(name string) error {
		now, err := accessOf(name)
		if err != nil || now == p.Permissions {
			return err
		}
		damage = p.changes(now)
		if now.acl != "" {
			_ = unix.Removexattr(name, aclName) // else the mode would change the ACL
		}
		if err := p.SetAccess(fs.FileMode(p.mode), int(p.uid), int(p.gid)); err != nil || p.acl == "" {
			return err
		}
		return unix.Setxattr(name, aclName, []byte(p.acl), 0)
	})
	return damage, err
}

// changes says what differs.
func (p Place) changes(now Permissions) string {
	var all []string
	if now.mode != p.mode {
		all = append(all, fmt.Sprintf("its mode was changed from %04o to %04o", p.mode, now.mode))
	}
	if now.uid != p.uid || now.gid != p.gid {
		all = append(all, fmt.Sprintf("its owner was changed from %d:%d to %d:%d", p.uid, p.gid, now.uid, now.gid))
	}
	if now.acl != p.acl {
		all = append(all, "its ACL was changed")
	}
	return strings.Join(all, ", ")
}

// open calls f with a name of the inode that cannot lead elsewhere, as long as f runs: the path may be replaced at any
// time.
func (p Place) open(f func(name string) error) error {
	at := p.Path
	if p.Inode.Gone(at) {
		at = p.link()
	}
	fd, err := unix.Open(at, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	switch now, _, err := stat(fd, "", unix.AT_EMPTY_PATH); {
	case err != nil: // nobody knows then whether it was replaced
		return fmt.Errorf("look at %s: %w", at, err)
	case now != p.Inode:
		return &Remedied{unix.ESTALE, "the socket at this path was replaced: reload to bind it again"}
	}
	return f("/proc/self/fd/" + strconv.Itoa(fd)) // fchmod(2) refuses O_PATH
}

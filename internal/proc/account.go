package proc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Account is a user of the user database.
type Account struct {
	Name, Home string
	UID, GID   uint32
	Groups     []uint32 // supplementary groups, and GID
}

// ErrIDRange says that a number is not a valid UID or GID. 4294967295 is invalid too: it means "leave unchanged" to
// chown(2) and setresuid(2).
var ErrIDRange = errors.New("must be a number below 4294967295")

// LookupAccount returns a user given by name or number. The user must be in the user database.
func LookupAccount(name string) (Account, error) {
	look := user.Lookup
	if _, err := strconv.ParseUint(name, 10, 32); err == nil {
		look = user.LookupId
	}
	u, err := lookUpUser(name, look)
	if err != nil {
		return Account{}, err
	}
	ids, err := groupIDs(u)
	if err != nil {
		return Account{}, fmt.Errorf("cannot look up the groups of user %s: %w", name, err)
	}
	a := Account{Name: u.Username, Home: u.HomeDir, UID: number(u.Uid), GID: number(u.Gid)}
	for _, id := range ids {
		if gid := number(id); !slices.Contains(a.Groups, gid) {
			a.Groups = append(a.Groups, gid)
		}
	}
	return a, nil
}

// UID returns the number of a user given by name or number. A number need not be in the user database: containers often
// have none. Errors: ErrIDRange, one for which Unknown is true, or a failure of the user database.
func UID(name string) (uint32, error) {
	return id(name, func() (string, error) {
		u, err := lookUpUser(name, user.Lookup)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
}

// GID is UID for groups.
func GID(name string) (uint32, error) {
	return id(name, func() (string, error) {
		g, err := lookUpGroup(name)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	})
}

// Unknown reports whether err says that the user database does not have a user or group.
func Unknown(err error) bool {
	var noUser user.UnknownUserError
	var noID user.UnknownUserIdError
	var noGroup user.UnknownGroupError
	return errors.As(err, &noUser) || errors.As(err, &noID) || errors.As(err, &noGroup)
}

// May reports whether the calling thread has a capability in its effective set (capabilities(7)).
func May(capability int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[capability/32].Effective&(1<<(capability%32)) != 0
}

// UserName returns the name of a user, or "".
func UserName(uid uint32) string {
	u, err := lookUpUser(strconv.FormatUint(uint64(uid), 10), user.LookupId)
	if err != nil {
		return ""
	}
	return u.Username
}

func id(name string, look func() (string, error)) (uint32, error) {
	n, err := strconv.ParseUint(name, 10, 64)
	switch {
	case err == nil && n >= math.MaxUint32:
		return 0, ErrIDRange
	case err == nil:
		return uint32(n), nil
	}
	text, err := look()
	return number(text), err
}

// number converts an ID of the user database; on Linux it is always a number.
func number(text string) uint32 {
	n, _ := strconv.ParseUint(text, 10, 32)
	return uint32(n)
}

// getentTimeout limits how long a directory service, such as LDAP, may take to answer.
const getentTimeout = 10 * time.Second

// getent asks the name service switch (nsswitch.conf) by getent(1): without cgo, package os/user reads only /etc/passwd
// and /etc/group. getent returns the first line, or "" if there is no such key, or no getent. An error says that there
// was no answer in time.
//
// The exit status does not count: the reaper of this process may have taken it.
func getent(database, key string) (string, error) {
	if strings.HasPrefix(key, "-") {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), getentTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "getent", database, key)
	c.Dir, c.Env = "/", []string{"PATH=" + os.Getenv("PATH")} // without NOTIFY_SOCKET
	var out bytes.Buffer
	c.Stdout, c.WaitDelay = &out, time.Second
	c.Run() //nolint:errcheck // see above
	if ctx.Err() != nil {
		return "", fmt.Errorf("getent %s %s has not answered within %v", database, key, getentTimeout)
	}
	line, _, _ := strings.Cut(out.String(), "\n")
	return line, nil
}

func lookUpUser(key string, look func(string) (*user.User, error)) (*user.User, error) {
	u, err := look(key)
	if err == nil || !Unknown(err) {
		return u, err
	}
	line, failure := getent("passwd", key)
	if f := strings.Split(line, ":"); len(f) == 7 { // name:password:UID:GID:comment:home:shell
		return &user.User{Username: f[0], Uid: f[2], Gid: f[3], HomeDir: f[5]}, nil
	}
	return nil, cmp.Or(failure, err)
}

func lookUpGroup(name string) (*user.Group, error) {
	g, err := user.LookupGroup(name)
	if err == nil || !Unknown(err) {
		return g, err
	}
	line, failure := getent("group", name)
	if f := strings.Split(line, ":"); len(f) == 4 { // name:password:GID:members
		return &user.Group{Name: f[0], Gid: f[2]}, nil
	}
	return nil, cmp.Or(failure, err)
}

// groupIDs returns the groups of a user, the primary one included.
func groupIDs(u *user.User) ([]string, error) {
	line, err := getent("initgroups", u.Username)
	if f := strings.Fields(line); len(f) > 0 { // name GID GID …, which need not include the primary group
		f[0] = u.Gid
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	return u.GroupIds()
}

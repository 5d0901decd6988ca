package proc

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"time"
)

// getentTimeout limits how long a directory service, such as LDAP, may take to answer.
const getentTimeout = 10 * time.Second

// getent asks the name service switch (nsswitch.conf) by getent(1): without cgo, package os/user reads only /etc/passwd and /etc/group.
// getent returns the first line, or "" if there is no such key, or no getent. An error says that there was no answer in time.
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

package control

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Trust makes the client also ask a supervisord that runs as the owner of this configuration file's directory: that user decides what the
// file says.
func (c *Client) Trust(config string) {
	dir, err := filepath.Abs(filepath.Dir(config))
	if err != nil {
		return
	}
	if info, err := os.Stat(dir); err == nil {
		c.trusted = append(c.trusted, ownerOf(info))
	}
}

// check returns an error wrapping ErrStranger if the process that listens at path cannot be trusted: one that was there first, in /tmp for
// example, could answer that a reload went well.
func (c *Client) check(conn *net.UnixConn, path string) error {
	p, err := peerOf(conn)
	if err != nil {
		return err
	}
	own := uint32(os.Geteuid())
	if p.UID == 0 || p.UID == own || slices.Contains(c.trusted, p.UID) {
		return nil
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err == nil && ownerOf(info) == p.UID && isGiven(dir, own) {
		return nil
	}
	return fmt.Errorf("%w: process %d at %s runs as user %d, who is neither root nor you: find out who made the socket; if the supervisord is theirs, ask as that user",
		ErrStranger, p.PID, path, p.UID)
}

// isGiven reports whether root or the user own has made dir, or given it to its owner: no part of its path was made where everybody may
// make one.
func isGiven(dir string, own uint32) bool {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for _, path := range []string{dir, resolved} {
		for ; path != filepath.Dir(path); path = filepath.Dir(path) {
			here, err := os.Lstat(path)
			above, bad := os.Stat(filepath.Dir(path))
			if err != nil || bad != nil {
				return false
			}
			if owner := ownerOf(here); above.Mode()&0o002 != 0 && owner != 0 && owner != own {
				return false
			}
		}
	}
	return true
}

func ownerOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

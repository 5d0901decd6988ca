package ready

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// PrepareDirectory creates the runtime directory, which will hold the notify sockets, or checks the existing one as
// CheckDirectory does. A new one below a directory like /tmp is closed to other users.
func PrepareDirectory(path string) error {
	above := filepath.Dir(path)
	if err := os.MkdirAll(above, 0o755); err != nil {
		return fmt.Errorf("cannot create the runtime directory: %w: choose another runtime_dir", err)
	}
	mode := os.FileMode(0o755)
	if info, err := os.Stat(above); err == nil && worldWritable(info) && os.Geteuid() != 0 {
		mode = 0o700
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("cannot create the runtime directory: %w: choose another runtime_dir", err)
	}
	return CheckDirectory(path)
}

// CheckDirectory returns an error if a user other than root and the caller can replace what is in the runtime
// directory, or could have created it: such a user could answer in the place of supervisord. A directory that does not
// exist is fine.
func CheckDirectory(path string) error {
	for at := path; at != filepath.Dir(at); at = filepath.Dir(at) {
		err := checkDirectory(at, at == path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// checkDirectory checks the runtime directory itself, or one above it, which matters only if everybody could have
// created it.
func checkDirectory(path string, itself bool) error {
	above, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("cannot look at the runtime directory: %w", err)
	}
	public := worldWritable(above)
	if !itself && !public {
		return nil
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return fmt.Errorf("cannot look at the runtime directory: %w", err)
	case public && above.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("everybody can replace the runtime directory %s: chmod o-w %s, or choose another runtime_dir", path,
			filepath.Dir(path))
	case public && info.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("the runtime directory %s is a symlink where everybody can make one: choose another runtime_dir",
			path)
	}
	if info, err = os.Stat(path); err != nil {
		return fmt.Errorf("cannot look at the runtime directory: %w", err)
	}
	return checkOwner(path, info, public)
}

// checkOwner checks the directory alone; public says that everybody could have created it.
func checkOwner(path string, info os.FileInfo, public bool) error {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case !info.IsDir():
		return fmt.Errorf("the runtime directory %s is not a directory: remove it, or choose another runtime_dir", path)
	case owner != 0 && owner != os.Geteuid():
		return fmt.Errorf("the runtime directory %s belongs to user %d, who can replace the sockets in it: run "+
			"supervisord as that user, or choose another runtime_dir", path, owner)
	case worldWritable(info) && info.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("everybody can write to the runtime directory %s: remove it if you do not know who made it so, "+
			"chmod o-w %[1]s, or choose another runtime_dir", path)
	case public && owner != 0 && info.Mode()&0o020 != 0:
		return fmt.Errorf("others can write to the runtime directory %s: chmod 700 %[1]s, or choose another runtime_dir",
			path)
	}
	return nil
}

func worldWritable(info os.FileInfo) bool { return info.Mode()&0o002 != 0 }

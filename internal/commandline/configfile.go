package commandline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// Installed is the configuration of an installed supervisord.
const Installed = "/etc/supervisord/config.toml"

const (
	configVariable = "SUPERVISORD_CONFIG"
	localConfig    = "supervisord.toml" // as `supervisord init` writes it
)

// ConfigFile is the configuration file that a command uses.
type ConfigFile struct {
	Path  string
	Named bool   // somebody chose this file: do not ask a supervisord that runs another file
	Note  string // tells a person which file was found; "": that is obvious
}

// ConfigFlag gives a tree of commands the flag -c. FindConfig must be asked before path is used.
func ConfigFlag(root *cobra.Command, path *string) {
	root.PersistentFlags().StringVarP(path, "config", "c", Installed,
		"configuration `file`; without -c that of $"+configVariable+", else the installed one, else ./"+localConfig)
}

// FindConfig sets path, the value of -c, to the configuration file that c uses: that of -c, else that of
// $SUPERVISORD_CONFIG, else the installed one, else ./supervisord.toml. A file that is used only because it lies in the
// working directory must belong to the caller or root: the shell of root may be in the directory of somebody else.
func FindConfig(c *cobra.Command, path *string) (ConfigFile, error) {
	if c.Flags().Changed("config") {
		return ConfigFile{Path: *path, Named: true}, nil
	}
	found, err := findConfig(os.Getenv(configVariable), Installed)
	*path = found.Path
	return found, err
}

func findConfig(variable, installed string) (ConfigFile, error) {
	if variable != "" {
		return ConfigFile{Path: variable, Named: true}, nil
	}
	_, err := os.Lstat(localConfig)
	isLocal := err == nil
	_, err = os.Stat(installed)
	switch isInstalled := !errors.Is(err, fs.ErrNotExist); {
	case isInstalled && isLocal:
		return ConfigFile{Path: installed,
			Note: "using " + installed + "; for the file in this directory write -c " + localConfig}, nil
	case isInstalled || !isLocal:
		return ConfigFile{Path: installed}, nil
	}
	here, err := os.Getwd()
	if err != nil {
		return ConfigFile{Path: installed}, err
	}
	path := filepath.Join(here, localConfig)
	if err := ownFile(path); err != nil {
		return ConfigFile{Path: path}, Usagef("not using %s: %v: to use this file anyway write -c %s", path, err, localConfig)
	}
	return ConfigFile{path, true, "using " + path}, nil
}

// ownFile returns an error if another ordinary user decides what is in a file: its owner, the owner of a symlink or of
// the directory, in which the file can be exchanged and to which paths in it are relative, or anybody who may write one
// of these.
func ownFile(path string) error {
	link, err := os.Lstat(path)
	if err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	err = own(path, link)
	for _, name := range []string{target, filepath.Dir(path)} {
		info, bad := os.Stat(name)
		if bad != nil {
			return bad
		}
		if err == nil {
			err = own(name, info)
		}
	}
	return err
}

func own(name string, info os.FileInfo) error {
	st := info.Sys().(*syscall.Stat_t)
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (uid %d)", name, st.Uid)
	}
	if info.Mode()&os.ModeSymlink != 0 {
		return nil // the mode of a symlink means nothing
	}
	if info.Mode()&0o002 != 0 || info.Mode()&0o020 != 0 && st.Gid != 0 && int(st.Gid) != os.Getegid() {
		return fmt.Errorf("other users may write %s (mode %04o)", name, info.Mode().Perm())
	}
	return nil
}

package kit

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/process"
)

// services numbers the services, so that several can run in one lab.
var services atomic.Int64

// override is a drop-in for the unit that supervisord ships with: another name, a log that is read here and not by
// journald, and an end when it is killed.
const override = `[Service]
ExecStart=
ExecStart=%[1]s run -c /run/%[2]s.toml
RuntimeDirectory=
RuntimeDirectory=%[2]s
StandardOutput=file:/run/%[2]s.log
StandardError=file:/run/%[2]s.log
Restart=no
`

// startService starts supervisord as a service of the lab, with the unit that it ships with.
func (s Setup) startService(config string) (*Subject, error) {
	name := fmt.Sprintf("measure%d", services.Add(1))
	root, err := SourceTree(context.Background())
	if err != nil {
		return nil, err
	}
	unit, err := os.ReadFile(filepath.Join(root, "systemd/supervisord.service"))
	if err != nil {
		return nil, err
	}
	if err := s.Lab.Copy(s.Binary, s.Binary); err != nil {
		return nil, err
	}
	for path, text := range map[string]string{
		"/run/" + name + ".toml":                                  "[supervisor]\n" + config,
		"/etc/systemd/system/" + name + ".service":                string(unit),
		"/etc/systemd/system/" + name + ".service.d/measure.conf": fmt.Sprintf(override, s.Binary, name),
	} {
		if err := s.Lab.Write(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	log := s.Lab.Path("/run/" + name + ".log")
	if err := unix.Mkfifo(log, 0o600); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(log, os.O_RDWR, 0) // for writing, too: it has an end only when it is closed here
	if err != nil {
		return nil, err
	}
	f, line, end := process.FollowLog()
	go func() {
		process.ReadLines(file, line)
		end()
	}()
	subject := &Subject{Follower: f, control: s.Lab.Path("/run/" + name + "/control.sock"), stop: func(time.Duration) {
		s.Lab.Try(context.Background(), "systemctl", "kill", "-s", "KILL", name) //nolint:errcheck // it may have ended
		file.Close()                                                             //nolint:errcheck // nothing more is read
	}}
	err = s.systemctl("daemon-reload")
	if err == nil {
		err = s.systemctl("start", name)
	}
	if err == nil {
		subject.pid, err = peer(subject.control)
	}
	if err != nil {
		subject.Abandon()
		return nil, err
	}
	return subject, nil
}

func (s Setup) systemctl(args ...string) error {
	out, code, err := s.Lab.Try(context.Background(), append([]string{"systemctl"}, args...)...)
	if err == nil && code != 0 {
		err = fmt.Errorf("systemctl %s: %s", strings.Join(args, " "), out)
	}
	return err
}

// peer returns the PID, as seen from here, of the process that listens on a unix socket.
func peer(path string) (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var who *unix.Ucred
	if e := raw.Control(func(fd uintptr) {
		who,
			err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, err
	}
	return int(who.Pid), nil
}

// Install makes files of this machine available to supervisord and its workers under the same path.
func (s Setup) Install(paths ...string) error {
	for _, path := range paths {
		if s.Lab != nil {
			if err := s.Lab.Copy(path, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Path returns where this process finds a file that supervisord's workers write.
func (s Setup) Path(inside string) string {
	if s.Lab != nil {
		return s.Lab.Path(inside)
	}
	return inside
}

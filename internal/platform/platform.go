// Package platform finds out what the kernel of this machine, or the sandbox around this process, lacks of what
// supervisord uses. It tries each feature and never reads a version.
package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/diag"
)

// Lack is something that is missing here.
type Lack struct {
	What   string // what is missing, and what that costs
	Remedy string
	Needed bool // supervisord does not work without it
}

// Lacks returns what is missing here. It opens a listening socket on the loopback for a moment, and changes nothing.
func Lacks() []Lack {
	var all []Lack
	for _, lack := range []*Lack{calls(), steering(), connections(), groups()} {
		if lack != nil {
			all = append(all, *lack)
		}
	}
	return all
}

// calls tries the system calls without which no worker can be started, signalled or adopted.
func calls() *Lack {
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		defer unix.Close(pidfd)
	}
	const none = 1<<31 - 1 // no descriptor has this number
	var missing []string
	for _, call := range []struct {
		name string
		try  func() error
	}{
		{"pidfd_open", func() error { return err }},
		{"pidfd_send_signal", func() error { return unix.PidfdSendSignal(pidfd, 0, nil, 0) }},
		{"close_range", func() error { return unix.CloseRange(none, none, 0) }},
	} {
		if err := call.try(); err != nil {
			missing = append(missing, fmt.Sprintf("%s: %v", call.name, err))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &Lack{
		What: "the kernel, or the sandbox of this process, refuses system calls that supervisord needs to start and " +
			"signal workers (" + strings.Join(missing, "; ") + ")",
		Remedy: "use Linux 5.10 or newer, and allow the calls where a seccomp filter forbids them",
		Needed: true,
	}
}

func steering() *Lack {
	why := socket.Unsteerable()
	if why == "" {
		return nil
	}
	return &Lack{What: why + ", so the generations share every TCP listener",
		Remedy: "allow it in the sandbox, or let workers stop gracefully by themselves"}
}

// connections asks whether the kernel shows connections, and whose they are.
func connections() *Lack {
	const late = "under load an old generation is told to stop only after drain.timeout"
	shown, err := diag.TagsShown()
	switch {
	case errors.Is(err, unix.ENOENT):
		return &Lack{What: "the kernel has no module tcp_diag, so what a worker has in hand cannot be seen: " + late,
			Remedy: "load it before supervisord starts: modprobe tcp_diag, and a line \"tcp_diag\" in " +
				"/etc/modules-load.d/supervisord.conf"}
	case err != nil:
		return &Lack{What: fmt.Sprintf(
			"the kernel, or the sandbox of this process, does not show connections (sock_diag: %v): %s", err, late),
			Remedy: "allow netlink sockets (AF_NETLINK) where a filter forbids them"}
	case !shown:
		return &Lack{What: "the kernel does not show which generation has a connection: " + late,
			Remedy: "use Linux 5.10 or newer"}
	}
	return nil
}

// groups looks for cgroup.kill, which every group but the root group of the kernel has.
func groups() *Lack {
	for _, dir := range proc.OwnGroups() {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.events")); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); errors.Is(err, fs.ErrNotExist) {
			return &Lack{What: "the kernel has no cgroup.kill: workers get no control groups, and a process that leaves its " +
				"worker's process group is only found while supervisord can follow its parents",
				Remedy: "use Linux 5.14 or newer"}
		}
		return nil
	}
	return nil
}

package socket

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/holder"
	"example.org/supervisord/socket/unixpath"
)

// refused says that r could not be opened, why, and what to do. It wraps the kernel's error (unix.EADDRINUSE, …).
func refused(r Resolved, err error) error {
	if err == nil {
		return nil
	}
	at := r.at.String()
	if r.Interface != "" {
		at += " on " + r.Interface
	}
	return fmt.Errorf("cannot listen on %s: %w", at, advise(r, err))
}

// advise adds the remedy to an error that has none.
func advise(r Resolved, err error) error {
	if r.at.onDisk() {
		err = unixpath.Advise(err, r.at.path, r.uid >= 0 || r.gid >= 0)
	}
	if _, ok := errors.AsType[*unixpath.Remedied](err); ok {
		return err
	}
	remedy := ""
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		remedy = inUse(r.at)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		remedy = forbidden(r)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		remedy = "this machine does not have the address: `ip address` lists what it has"
	case errors.Is(err, unix.ENODEV):
		remedy = "there is no such interface: `ip link` lists them"
	case errors.Is(err, unix.EAFNOSUPPORT):
		remedy = "this kernel has IPv6 switched off: use an IPv4 address"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		remedy = "raise LimitNOFILE= of the unit, or `ulimit -n`"
	}
	if remedy == "" {
		return err
	}
	return &unixpath.Remedied{Err: err, Remedy: remedy}
}

func forbidden(r Resolved) string {
	switch {
	case r.Interface != "" && (r.at.port == 0 || r.at.port >= 1024):
		return "binding to an interface needs CAP_NET_RAW"
	case !r.at.isUnix():
		return "a port this low needs root or CAP_NET_BIND_SERVICE " +
			"(or a lower net.ipv4.ip_unprivileged_port_start, or a systemd socket unit)"
	}
	return "the supervisor's user may not do this"
}

// inUse says which process has the address, as far as this user may know.
func inUse(at bindAddr) string {
	if at.isUnix() {
		return "another process has it: `ss -xlp` shows which"
	}
	return holder.InUse(at.network, netip.AddrPortFrom(at.ip, at.port))
}

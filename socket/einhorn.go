package socket

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// EinhornWorker is what einhorn tells a worker of itself (lib/einhorn/command.rb, prepare_child_environment).
type EinhornWorker struct {
	Sockets []Inherit // EINHORN_FD_0 and on; they have no names: "unknown"
	AckPath string    // EINHORN_SOCK_PATH: the unix socket on which an ack is sent; "": none
	AckFD   int       // EINHORN_SOCK_FD: a connection to it; -1: none
}

// ErrNoEinhorn is returned to a process that einhorn did not start.
var ErrNoEinhorn = errors.New("not started by einhorn")

// FromEinhorn returns what a process is told whose parent (its getppid(2)) is EINHORN_MASTER_PID. In any other process the
// variables are left over from somebody else, and the error is ErrNoEinhorn.
//
// As with Inherited every descriptor becomes close-on-exec, and it is an error if a variable is malformed or a descriptor is not open.
func FromEinhorn(environ []string, parent int) (EinhornWorker, error) {
	variables := einhornOnly(environ)
	w := EinhornWorker{AckPath: variables["EINHORN_SOCK_PATH"], AckFD: -1}
	if variables["EINHORN_MASTER_PID"] != strconv.Itoa(parent) {
		return w, ErrNoEinhorn
	}
	if _, ok := variables["EINHORN_SOCK_FD"]; ok {
		ack, err := einhornFD(variables, "EINHORN_SOCK_FD")
		if err != nil {
			return w, err
		}
		w.AckFD = ack.FD
	}
	count, err := strconv.ParseUint(variables["EINHORN_FD_COUNT"], 10, 31)
	if err != nil {
		return w, malformedVariable("EINHORN_FD_COUNT", variables["EINHORN_FD_COUNT"])
	}
	for i := range count { // the first that is missing ends it, however many there were said to be
		s, err := einhornFD(variables, "EINHORN_FD_"+strconv.FormatUint(i, 10))
		if err != nil {
			return w, err
		}
		w.Sockets = append(w.Sockets, s)
	}
	return w, nil
}

func einhornOnly(environ []string) map[string]string {
	variables := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok && strings.HasPrefix(name, "EINHORN_") {
			variables[name] = value
		}
	}
	return variables
}

func einhornFD(variables map[string]string, name string) (Inherit, error) {
	fd, err := strconv.ParseUint(variables[name], 10, 31)
	if err != nil || fd > highestFD {
		return Inherit{}, malformedVariable(name, variables[name])
	}
	return Examine(int(fd), "unknown")
}

// EinhornAck is what the worker pid writes, once, on einhorn's control socket when it serves. einhorn answers by closing the
// connection.
func EinhornAck(pid int) []byte {
	return fmt.Appendf(nil, "{\"command\":\"worker:ack\",\"pid\":%d}\n", pid)
}

package inherit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Einhorn is what einhorn tells a worker about itself (lib/einhorn/command.rb, prepare_child_environment).
type Einhorn struct {
	Sockets []Socket // EINHORN_FD_0 and following; their names are "unknown"
	AckPath string   // EINHORN_SOCK_PATH: the unix socket for the ack; "": none
	AckFD   int      // EINHORN_SOCK_FD: a connection to it; -1: none
}

// ErrNoEinhorn is returned to a process that einhorn did not start.
var ErrNoEinhorn = errors.New("not started by einhorn")

// FromEinhorn returns what environ tells a process whose parent (getppid(2)) is EINHORN_MASTER_PID. In any other process the variables
// are left over from somewhere else, and the error is ErrNoEinhorn. Descriptors and other errors are as in FromEnvironment.
func FromEinhorn(environ []string, parent int) (Einhorn, error) {
	variables := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok && strings.HasPrefix(name, "EINHORN_") {
			variables[name] = value
		}
	}
	e := Einhorn{AckPath: variables["EINHORN_SOCK_PATH"], AckFD: -1}
	if variables["EINHORN_MASTER_PID"] != strconv.Itoa(parent) {
		return e, ErrNoEinhorn
	}
	if _, ok := variables["EINHORN_SOCK_FD"]; ok {
		ack, err := einhornFD(variables, "EINHORN_SOCK_FD")
		if err != nil {
			return e, err
		}
		e.AckFD = ack.FD
	}
	count, err := strconv.ParseUint(variables["EINHORN_FD_COUNT"], 10, 31)
	if err != nil {
		return e, malformed("EINHORN_FD_COUNT", variables["EINHORN_FD_COUNT"])
	}
	for i := range count { // the first missing one is an error, whatever the count
		s, err := einhornFD(variables, "EINHORN_FD_"+strconv.FormatUint(i, 10))
		if err != nil {
			return e, err
		}
		e.Sockets = append(e.Sockets, s)
	}
	return e, nil
}

func einhornFD(variables map[string]string, name string) (Socket, error) {
	fd, err := fdNumber(name, variables[name])
	if err != nil {
		return Socket{}, err
	}
	return Examine(fd, "unknown")
}

// EinhornAck is what the worker pid writes once on einhorn's control socket when it serves. einhorn answers by closing the connection.
func EinhornAck(pid int) []byte {
	return fmt.Appendf(nil, "{\"command\":\"worker:ack\",\"pid\":%d}\n", pid)
}

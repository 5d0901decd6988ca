package inherit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/socket/inherit"
)

func TestFromEinhornReadsTheVariablesOfTheDialect(t *testing.T) {
	fd := listenForTest(t)
	told := dialect.Message{Dialects: []dialect.Name{dialect.Einhorn}, Sockets: []dialect.Passed{{FD: 3}}, Parent: 7}.Environment()
	for i, v := range told {
		told[i] = strings.Replace(v, "EINHORN_FD_0=3", fmt.Sprintf("EINHORN_FD_0=%d", fd), 1)
	}
	w, err := inherit.FromEinhorn(append(told, "EINHORN_SOCK_PATH=/run/einhorn.sock"), 7)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Sockets) != 1 || w.Sockets[0].FD != fd || w.Sockets[0].Network != "tcp" || !w.Sockets[0].Listens || w.Sockets[0].Name != "unknown" {
		t.Errorf("sockets are %+v", w.Sockets)
	}
	if w.AckPath != "/run/einhorn.sock" || w.AckFD != -1 {
		t.Errorf("the ack goes to %q, %d", w.AckPath, w.AckFD)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags are %d (%v), want close-on-exec", flags, err)
	}
}

func TestFromEinhornIsForTheChildrenOfEinhornAlone(t *testing.T) {
	for _, environ := range [][]string{nil, {"EINHORN_FD_COUNT=1", "EINHORN_FD_0=3"}, {"EINHORN_MASTER_PID=8", "EINHORN_FD_COUNT=x"}} {
		if w, err := inherit.FromEinhorn(environ, 7); !errors.Is(err, inherit.ErrNoEinhorn) || len(w.Sockets) > 0 {
			t.Errorf("%q: %+v, %v", environ, w, err)
		}
	}
}

func TestFromEinhornRejectsMalformedVariables(t *testing.T) {
	for environ, want := range map[string]string{
		"":                                    "EINHORN_FD_COUNT is malformed",
		"EINHORN_FD_COUNT=-1":                 "EINHORN_FD_COUNT is malformed",
		"EINHORN_FD_COUNT=2000000000":         "EINHORN_FD_0 is malformed",
		"EINHORN_FD_COUNT=1 EINHORN_FD_0=x":   "EINHORN_FD_0 is malformed",
		"EINHORN_FD_COUNT=1 EINHORN_FD_0=999": "descriptor 999",
		"EINHORN_FD_COUNT=0 EINHORN_SOCK_FD=": "EINHORN_SOCK_FD is malformed",
	} {
		_, err := inherit.FromEinhorn(append(strings.Fields(environ), "EINHORN_MASTER_PID=7"), 7)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", environ, err, want)
		}
	}
}

func listenForTest(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		t.Cleanup(func() { unix.Close(fd) })
		err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

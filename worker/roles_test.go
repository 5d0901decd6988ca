package worker

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysSignal(n int) syscall.Signal { return syscall.Signal(n) }

// play runs this binary as a worker.
func play(name string) int {
	switch name {
	case "report":
		fd, _ := strconv.Atoi(os.Getenv("TEST_REPORT"))
		f := os.NewFile(uintptr(fd), "report")
		json.NewEncoder(f).Encode(describeSelf())
		return 0
	case "notify": // sends each argument in TEST_MESSAGES, split at "|", as a datagram
		for _, m := range strings.Split(os.Getenv("TEST_MESSAGES"), "|") {
			sendTo(os.Getenv("NOTIFY_SOCKET"), []byte(strings.ReplaceAll(m, ";", "\n")))
		}
		return 0
	case "flood":
		for range 20_000 {
			sendTo(os.Getenv("NOTIFY_SOCKET"), []byte("STATUS=busy\nWATCHDOG=1\nREADY=1"))
		}
		sendTo(os.Getenv("NOTIFY_SOCKET"), []byte("STATUS=done"))
		return 0
	case "fuse":
		return tell(mountSlowly(os.Getenv("TEST_DIR")))
	case "accept":
		ln, err := net.FileListener(os.NewFile(3, "socket"))
		if err == nil {
			_, err = ln.Accept()
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	case "foreign": // another process sends first, then the worker
		sendTo(os.Getenv("TEST_SOCKET"), []byte("STATUS=forged"))
		return 0
	}
	fmt.Fprintln(os.Stderr, "no such role:", name)
	return 2
}

// describeSelf reports what a worker inherits. Signal masks are not included because Go changes them; the shell tests
// check those.
func describeSelf() map[string]string {
	m := map[string]string{
		"pid":  strconv.Itoa(os.Getpid()),
		"pgid": strconv.Itoa(unix.Getpgrp()),
		"fds":  strings.Join(listFDs(), " "),
	}
	m["cwd"], _ = os.Getwd()
	for _, v := range os.Environ() {
		key, value, _ := strings.Cut(v, "=")
		m["env."+key] = value
	}
	return m
}

func listFDs() []string {
	var fds []string
	for fd := range 200 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			link, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			fds = append(fds, strconv.Itoa(fd)+"="+link)
		}
	}
	return fds
}

// sendTo sends a datagram, with descriptors.
func sendTo(path string, data []byte, fds ...int) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(fd, data, control, &unix.SockaddrUnix{Name: path}, 0)
}

func tell(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

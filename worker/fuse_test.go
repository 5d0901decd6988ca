package worker

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/worker/life"
)

// slowFile is a file whose content never arrives: its FUSE file system answers everything but READ. Another process
// serves it and exits after a minute, because a process that waits for its own file system could not be killed.
func slowFile(t *testing.T, l *Launcher) (path string) {
	t.Helper()
	needRoot(t, "a file system")
	dir := t.TempDir()
	s := started(t, l, role("fuse", "TEST_DIR="+dir))
	if _, skip := s.next().(life.Exited); skip {
		t.Skip("FUSE is not available")
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH) })
	return dir + "/file"
}

// mountSlowly is the process behind slowFile.
func mountSlowly(dir string) error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Mount("test", dir, "fuse", 0,
		fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)); err != nil {
		return err
	}
	time.AfterFunc(time.Minute, func() { os.Exit(1) })
	sendTo(os.Getenv("NOTIFY_SOCKET"), []byte("READY=1"))
	serveSlowly(os.NewFile(uintptr(fd), "fuse"))
	return nil
}

// serveSlowly speaks the protocol of fuse(4), as far as opening a file needs it (linux/fuse.h).
func serveSlowly(server *os.File) {
	request := make([]byte, 1<<20)
	for {
		n, err := server.Read(request)
		if err != nil || n < 40 {
			return
		}
		order := binary.NativeEndian
		unique, node := order.Uint64(request[8:]), order.Uint64(request[16:])
		var body []byte
		var errno unix.Errno
		switch order.Uint32(request[4:]) {
		case 1: // LOOKUP
			body = append(order.AppendUint64(nil, 2), make([]byte, 32)...)
			body = append(body, fileAttributes(2)...)
		case 2, 15, 36, 42: // FORGET, READ, INTERRUPT, BATCH_FORGET
			continue
		case 3: // GETATTR
			body = append(make([]byte, 16), fileAttributes(node)...)
		case 14: // OPEN
			body = make([]byte, 16)
		case 26: // INIT: version 7.31, reads are asynchronous
			body = order.AppendUint32(order.AppendUint32(nil, 7), 31)
			body = order.AppendUint32(order.AppendUint32(body, 1<<16), 1)
			body = append(body, make([]byte, 64-len(body))...)
		default:
			errno = unix.ENOSYS
		}
		answer := order.AppendUint32(nil, uint32(16+len(body)))
		answer = order.AppendUint32(answer, uint32(-int32(errno)))
		server.Write(append(order.AppendUint64(answer, unique), body...))
	}
}

// fileAttributes is a struct fuse_attr: the root directory, or a file of one page.
func fileAttributes(node uint64) []byte {
	mode := uint32(unix.S_IFREG | 0o755)
	if node == 1 {
		mode = unix.S_IFDIR | 0o755
	}
	order := binary.NativeEndian
	a := order.AppendUint64(order.AppendUint64(nil, node), 4096)
	a = append(a, make([]byte, 4*8+3*4)...)
	a = order.AppendUint32(order.AppendUint32(a, mode), 1)
	return append(a, make([]byte, 88-len(a))...)
}

package attack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// hangingDisk is a file system with one directory that can hang, like a disk or network file system that does not
// answer: a process that opens, writes or closes a file there waits until it is killed. It implements the part of
// fuse(4) that appending to files needs, and needs root. Only other processes may use it: the test process, which
// answers, would wait for itself.
type hangingDisk struct {
	Dir     string
	fd      int
	flushes bool

	mu     sync.Mutex
	hangs  bool
	waits  bool // a request, until Resume
	goes   *sync.Cond
	files  map[string]uint64
	data   map[uint64]*bytes.Buffer
	last   uint64
	ended  chan struct{}
	buffer [1 << 20]byte
}

// newDisk mounts a hangingDisk until the end of the test. On one of the network every close waits for an answer, even
// at an exec or an exit, and not even KILL ends that wait; on a local one, closing a file writes nothing. It is
// unmounted when its user has ended: this would continue writing to the directory below, which then cannot be removed.
func newDisk(t testing.TB, network bool, m *lab.Supervisord) *hangingDisk {
	t.Helper()
	lab.NeedRoot(t, "mount a file system")
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("FUSE is not available: %v", err)
	}
	d := &hangingDisk{Dir: t.TempDir(), fd: fd, flushes: network, files: map[string]uint64{},
		data: map[uint64]*bytes.Buffer{}, last: fuseRoot, ended: make(chan struct{})}
	d.goes = sync.NewCond(&d.mu)
	options := fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("lab", d.Dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(fd)
		t.Skipf("cannot mount FUSE: %v", err)
	}
	go d.serve()
	lab.Must(t, exec.Command("touch", d.Path("x")).Run()) // here the kernel learns whether a close must wait
	t.Cleanup(func() {
		d.Resume()
		m.Finish()
		if err := unix.Unmount(d.Dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Errorf("cannot unmount %s: %v", d.Dir, err)
		}
		<-d.ended
		unix.Close(fd)
		below, _ := os.ReadDir(d.Dir)
		for _, left := range below {
			t.Errorf("%s was written to the directory below the disk", left.Name())
		}
	})
	return d
}

// Path returns the path of a file on the hangingDisk.
func (d *hangingDisk) Path(name string) string { return filepath.Join(d.Dir, name) }

// Hang makes every request wait until Resume.
func (d *hangingDisk) Hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangs = true
}

// Resume undoes Hang.
func (d *hangingDisk) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangs, d.waits = false, false
	d.goes.Signal()
}

// Waits reports whether a request waits for Resume.
func (d *hangingDisk) Waits() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waits
}

// Read returns the content of a file, even while the hangingDisk hangs.
func (d *hangingDisk) Read(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if data := d.data[d.files[name]]; data != nil {
		return data.String()
	}
	return ""
}

// serve answers requests one by one. It reads none while the hangingDisk hangs, because not even KILL ends the wait for
// a request that was read and not answered.
func (d *hangingDisk) serve() {
	defer close(d.ended)
	for {
		poll := []unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) || poll[0].Revents&unix.POLLERR != 0 {
			return
		}
		d.mu.Lock()
		for d.waits = d.hangs; d.hangs; {
			d.goes.Wait()
		}
		n, err := unix.Read(d.fd, d.buffer[:])
		if err == nil && n >= fuseHeader {
			d.handle(d.buffer[:n])
		}
		d.mu.Unlock()
		if errors.Is(err, unix.ENODEV) { // unmounted
			return
		}
	}
}

// From linux/fuse.h.
const (
	fuseRoot   = 1
	fuseHeader = 40

	fuseLookup, fuseForget, fuseGetattr, fuseSetattr = 1, 2, 3, 4
	fuseUnlink, fuseRename, fuseOpen, fuseWrite      = 10, 12, 14, 16
	fuseRelease, fuseFlush, fuseInit, fuseOpendir    = 18, 25, 26, 27
	fuseReleasedir, fuseCreate, fuseInterrupt        = 29, 35, 36
	fuseBatchForget, fuseRename2                     = 42, 45
)

var native = binary.NativeEndian

// handle answers one request. d.mu is held.
func (d *hangingDisk) handle(request []byte) {
	op, unique, node := native.Uint32(request[4:]), native.Uint64(request[8:]), native.Uint64(request[16:])
	if op == fuseForget || op == fuseBatchForget || op == fuseInterrupt {
		return
	}
	body, errno := d.answer(op, node, request[fuseHeader:])
	out := native.AppendUint32(nil, uint32(16+len(body)))
	out = native.AppendUint32(out, uint32(-int32(errno)))
	out = native.AppendUint64(out, unique)
	unix.Write(d.fd, append(out, body...)) //nolint:errcheck // the requesting process may have been killed
}

func (d *hangingDisk) answer(op uint32, node uint64, in []byte) ([]byte, syscall.Errno) {
	switch op {
	case fuseInit:
		out := make([]byte, 64)
		native.PutUint32(out, 7)
		native.PutUint32(out[4:], 31)
		native.PutUint32(out[20:], 1<<17) // max_write
		return out, 0
	case fuseLookup:
		found, has := d.files[text(in)]
		if !has {
			return nil, unix.ENOENT
		}
		return d.entry(found), 0
	case fuseGetattr, fuseSetattr:
		return append(make([]byte, 16), d.attributes(node)...), 0
	case fuseCreate:
		name := text(in[16:])
		if _, has := d.files[name]; !has {
			d.last++
			d.files[name], d.data[d.last] = d.last, new(bytes.Buffer)
		}
		return append(d.entry(d.files[name]), make([]byte, 16)...), 0
	case fuseOpen, fuseOpendir:
		return make([]byte, 16), 0
	case fuseWrite:
		size := native.Uint32(in[16:])
		d.data[node].Write(in[40 : 40+size])
		return native.AppendUint64(nil, uint64(size)), 0
	case fuseUnlink:
		delete(d.files, text(in))
		return nil, 0
	case fuseRename, fuseRename2:
		return nil, d.rename(in[map[uint32]int{fuseRename: 8, fuseRename2: 16}[op]:])
	case fuseRelease, fuseReleasedir:
		return nil, 0
	case fuseFlush:
		if d.flushes {
			return nil, 0
		}
	}
	return nil, unix.ENOSYS
}

func (d *hangingDisk) rename(names []byte) syscall.Errno {
	from, to, _ := bytes.Cut(names, []byte{0})
	d.files[text(to)] = d.files[string(from)]
	delete(d.files, string(from))
	return 0
}

// text returns the string before the first NUL.
func text(in []byte) string {
	name, _, _ := bytes.Cut(in, []byte{0})
	return string(name)
}

// entry returns a fuse_entry_out without caching.
func (d *hangingDisk) entry(node uint64) []byte {
	out := native.AppendUint64(nil, node)
	return append(append(out, make([]byte, 32)...), d.attributes(node)...)
}

// attributes returns a fuse_attr.
func (d *hangingDisk) attributes(node uint64) []byte {
	mode, size := uint32(unix.S_IFREG|0o644), 0
	if node == fuseRoot {
		mode = unix.S_IFDIR | 0o755
	} else if data := d.data[node]; data != nil {
		size = data.Len()
	}
	out := make([]byte, 88)
	native.PutUint64(out, node)
	native.PutUint64(out[8:], uint64(size))
	native.PutUint32(out[60:], mode)
	native.PutUint32(out[64:], 1) // links
	native.PutUint32(out[68:], uint32(os.Geteuid()))
	native.PutUint32(out[80:], 4096)
	return out
}

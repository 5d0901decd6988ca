package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
)

// points is the loop that steering is compared with: two sockets of a SO_REUSEPORT group, a worker on each in turn, and
// when one says READY=1, the setsockopt that sends new connections to it.
type points struct {
	worker  string
	sockets [2]*os.File
	address string
	notify  *net.UnixConn
	stamps  string
	last    *exec.Cmd // the worker that serves
	turn    int
	chat    *chat
}

func newPoints(worker, dir string) (*points, error) {
	p := &points{worker: worker, address: kit.FreeAddress(), stamps: filepath.Join(dir, "points")}
	for i := range p.sockets {
		fd, err := listen(p.address)
		if err != nil {
			return nil, err
		}
		p.sockets[i] = os.NewFile(uintptr(fd), "lane")
	}
	var err error
	p.notify, err = net.ListenUnixgram("unixgram",
		&net.UnixAddr{Name: filepath.Join(dir, "points.notify"), Net: "unixgram"})
	return p, err
}

func listen(address string) (fd int, err error) {
	at, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return -1, err
	}
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	return fd, errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}), unix.Listen(fd, 4096))
}

// to sends new connections to the socket with this index.
func (p *points) to(index int) error {
	return unix.SetsockoptSockFprog(int(p.sockets[0].Fd()), unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(index)}})
}

// measure replaces the worker once.
func (p *points) measure(ctx context.Context) error {
	p.turn++
	index := p.turn % 2
	w := exec.Command(p.worker)
	w.ExtraFiles = []*os.File{p.sockets[index]}
	w.Env = append(os.Environ(), "NOTIFY_SOCKET="+p.notify.LocalAddr().String(), "BENCH_STAMPS="+p.stamps,
		"SUPERVISORD_GENERATION="+strconv.Itoa(p.turn))
	if err := w.Start(); err != nil {
		return err
	}
	p.notify.SetReadDeadline(time.Now().Add(kit.Patience)) //nolint:errcheck // only a hang would show it
	_, err := p.notify.Read(make([]byte, 64))
	if err := errors.Join(err, p.to(index)); err != nil {
		return errors.Join(err, w.Process.Kill(), w.Wait())
	}
	if p.chat == nil {
		p.chat = beginChat(load.Dial(p.address), 1)
	}
	if _, err := p.chat.await(ctx, p.turn); err != nil {
		return err
	}
	err = p.stop()
	p.last = w
	return err
}

// switched ends the last worker and returns the times from READY=1 to the first answer. The first worker found no
// traffic.
func (p *points) switched() (all []time.Duration, err error) {
	p.chat.end()
	if err := p.stop(); err != nil {
		return nil, err
	}
	at, err := readStamps(p.stamps)
	for turn := 2; turn <= p.turn && err == nil; turn++ {
		all = append(all, p.chat.firstOf(turn)-at[turn].ready)
	}
	return all, err
}

// stop ends the worker that served.
func (p *points) stop() error {
	if p.last == nil {
		return nil
	}
	w := p.last
	p.last = nil
	return errors.Join(w.Process.Signal(unix.SIGTERM), w.Wait())
}

func (p *points) close() {
	if p.chat != nil {
		p.chat.end()
	}
	p.stop() //nolint:errcheck // what it measured is known
	for _, s := range p.sockets {
		s.Close() //nolint:errcheck // nobody connects any more
	}
	p.notify.Close() //nolint:errcheck // nobody sends any more
}

package servers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
)

func TestTftpdInTheMannerOfInetdLosesNoTransfer(t *testing.T) {
	t.Parallel()
	needs(t, "tftpd-hpa", "/usr/sbin/in.tftpd")
	s := prepareFrom(t, examples, "tftpd")
	s.replace("tftpd.toml", `"STOP", timeout = "30s"`, `"STOP", timeout = "2s"`) // no transfer of this test takes longer
	s.launch()
	want := s.Read("tftpd/files/boot.cfg")
	at := s.serves().at("127.0.0.1:9004")
	l := s.press(transfers("new", 12, 0, at, "boot.cfg", want),
		transfers("slow", 6, 80*time.Millisecond, at, "boot.cfg", want))
	s.redeploy()
	l.lossless()
	if n := asked.Load(); int(n) > redeploys() {
		t.Errorf("%d requests had to be sent again, more than one for each of %d redeploys", n, redeploys())
	}
}

// asked counts the requests that were sent again: one that a process has read when STOP comes, and not handed to a
// child yet, is lost.
var asked atomic.Int64

// askAgain is how long the first block may take until a request counts as lost and is sent again.
const askAgain = 5 * time.Second

// The packets of TFTP (RFC 1350, section 5) that a client needs, and the length of a block.
const (
	readRequest = 1
	data        = 3
	acknowledge = 4
	blockLength = 512
)

// transfers returns clients that fetch a file and acknowledge each block after this delay.
func transfers(kind string, count int, each time.Duration, address, file, want string) clients {
	return clients{kind, count, load.Measure(func() error {
		got, err := fetch(address, file, each)
		if err == nil && string(got) != want {
			err = fmt.Errorf("%d of %d bytes, or wrong ones", len(got), len(want))
		}
		return err
	})}
}

// fetch reads a file by TFTP. It retransmits nothing but the request, once; each transfer has its own port at either
// end.
func fetch(address, file string, each time.Duration) ([]byte, error) {
	server, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	request := fmt.Appendf([]byte{0, readRequest}, "%s\x00octet\x00", file)
	conn.SetDeadline(time.Now().Add(askAgain))
	if _, err := conn.WriteTo(request, server); err != nil {
		return nil, err
	}
	var got []byte
	for block := uint16(1); ; block++ {
		part, from, err := receive(conn, block)
		if block == 1 && errors.Is(err, os.ErrDeadlineExceeded) {
			asked.Add(1)
			conn.SetDeadline(time.Now().Add(lab.AnswerTimeout))
			if _, err = conn.WriteTo(request, server); err == nil {
				part, from, err = receive(conn, block)
			}
		}
		if err != nil {
			return nil, err
		}
		conn.SetDeadline(time.Now().Add(lab.AnswerTimeout))
		got = append(got, part...)
		time.Sleep(each)
		if _, err := conn.WriteTo(binary.BigEndian.AppendUint16([]byte{0, acknowledge}, block), from); err != nil {
			return nil, err
		}
		if len(part) < blockLength {
			return got, nil
		}
	}
}

// receive waits for a block of the file; the server may send a block again.
func receive(conn *net.UDPConn, block uint16) ([]byte, net.Addr, error) {
	var packet [4 + blockLength]byte
	for {
		n, from, err := conn.ReadFrom(packet[:])
		switch {
		case err != nil:
			return nil, nil, err
		case n < 4 || packet[1] != data:
			return nil, nil, errors.New("the server answers with an error")
		case binary.BigEndian.Uint16(packet[2:]) == block:
			return append([]byte(nil), packet[4:n]...), from, nil
		}
	}
}

package tests

import (
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

func TestSharedUDPSocketKeepsItsDatagramsOverAReload(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Plain, "{sleep}", `{worker}`, 1)+lab.Listener("udp:127.0.0.1:0")+
		"handover = \"share\"\n")
	m.Serves(1)
	name, err := unix.Getsockname(lab.Steal(t, m.WorkerPID(1), 3))
	lab.Must(t, err)
	c, err := net.Dial("udp", (&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}).String())
	lab.Must(t, err)
	defer c.Close()
	_, err = c.Write([]byte("hello"))
	lab.Must(t, err)
	m.Reload()
	m.Gone(1)
	mine := lab.Steal(t, m.WorkerPID(2), 3)
	lab.Must(t, unix.SetsockoptTimeval(mine, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	buf := make([]byte, 10)
	if n, err := unix.Read(mine, buf); err != nil || string(buf[:n]) != "hello" {
		t.Errorf("the second generation reads %q, %v", buf[:max(n, 0)], err)
	}
}

func TestPerSlotOpensOneSocketPerSlotAndGenerationsTakeTurns(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Web, "[[program", "workers = 3\n[[program", 1)+"[program.web.restart]\n")
	m.Serves(1)
	m.Write(strings.Replace(strings.Replace(lab.Web, "[[program", "workers = 3\n[[program", 1), "127.0.0.1:0\"",
		lab.Reserve(t)+"\"\nper_slot = true", 1))
	m.Reload()
	m.Serves(2)
	inodes := map[string]bool{}
	for g := 2; g <= 5; g++ {
		own := map[string]bool{}
		for n := range 3 {
			inode := lab.Descriptors(t, m.Await(lab.Says(lab.WorkerRuns), lab.Gen(g), lab.Slot(n)).PID)[3]
			own[inode], inodes[inode] = true, true
		}
		if len(own) != 3 || len(inodes) != min(3*(g-1), 6) {
			t.Errorf("the three slots of generation %d have %d sockets, and all generations so far had %d", g, len(own),
				len(inodes))
		}
		m.Reload()
		m.Serves(g + 1)
		m.Gone(g)
	}
}

package usage

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/proc"
	"example.org/supervisord/socket/diag"
)

// errNoQueue says that connections do not queue on a socket.
var errNoQueue = errors.New("not a listening socket")

// queueOf returns how many connections wait to be accepted from one of this process's own listening sockets, and how many can.
// It asks TCP sockets by TCP_INFO (tcp(7); tcpi_unacked and tcpi_sacked of a listener are the queue and its limit), unix sockets by
// sock_diag(7). Errors: errNoQueue for anything else.
func queueOf(fd int) (waiting, limit int, err error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return 0, 0, os.NewSyscallError("getsockopt", err)
	}
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
		return 0, 0, errNoQueue
	}
	switch domain {
	case unix.AF_INET, unix.AF_INET6:
		info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
		if err != nil {
			return 0, 0, os.NewSyscallError("getsockopt", err)
		}
		return int(info.Unacked), int(info.Sacked), nil
	case unix.AF_UNIX:
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return 0, 0, os.NewSyscallError("fstat", err)
		}
		return diag.UnixQueue(stat.Ino)
	}
	return 0, 0, errNoQueue
}

// processTable is every process that can be seen, at one moment.
type processTable struct {
	all      map[int]proc.Stat
	groups   map[int][]int
	children map[int][]int
}

// processes reads /proc. It leaves out what it cannot read.
func processes() *processTable {
	t := &processTable{all: map[int]proc.Stat{}, groups: map[int][]int{}, children: map[int][]int{}}
	for _, p := range proc.Stats() {
		t.all[p.PID] = p
		t.groups[p.Group] = append(t.groups[p.Group], p.PID)
		t.children[p.Parent] = append(t.children[p.Parent], p.PID)
	}
	return t
}

// group sums up the CPU time and memory of a process group. It began when the oldest of its processes did. The other fields are those of
// its leader, if that lives.
func (t *processTable) group(number int) (sum proc.Stat, processes int) {
	sum = t.all[number]
	sum.CPU, sum.Resident = 0, 0
	for _, pid := range t.groups[number] {
		sum.CPU += t.all[pid].CPU
		sum.Resident += t.all[pid].Resident
		if began := t.all[pid].Began; sum.Began == 0 || began < sum.Began {
			sum.Began = began
		}
	}
	return sum, len(t.groups[number])
}

// family returns processes, the rest of their process groups, and all descendants of these.
func (t *processTable) family(pids []int) (all []int) {
	known := map[int]bool{}
	add := func(more []int) {
		for _, pid := range more {
			if !known[pid] {
				known[pid] = true
				all = append(all, pid)
			}
		}
	}
	add(pids)
	for _, pid := range pids {
		add(t.groups[pid])
	}
	for i := 0; i < len(all); i++ {
		add(t.children[all[i]])
	}
	return all
}

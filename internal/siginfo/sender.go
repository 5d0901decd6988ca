package siginfo

import (
	"context"
	"os"
	"time"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/internal/proc"
)

// Sender is a process that sent a signal, as far as it was still there to be looked at.
type Sender struct {
	Name    string // "": the process had ended
	Lineage []int  // its PID, those of its ancestors below this process, and that of its session
}

// lookWithin is how long a signal waits for what /proc says about its sender.
const lookWithin = 200 * time.Millisecond

// lookAt finds out who a process is. looks belongs to the one goroutine that does this.
func lookAt(looks *foreign.Looks, pid int) Sender {
	if pid <= 0 {
		return Sender{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookWithin)
	defer cancel()
	sender, err := foreign.Look(ctx, looks, pid, func() Sender { return readSender(pid) })
	if err != nil {
		return Sender{Lineage: []int{pid}}
	}
	return sender
}

func readSender(pid int) Sender {
	s := Sender{Name: proc.Name(pid), Lineage: []int{pid}}
	stat, err := proc.ReadStat(pid)
	for session, self := stat.Session, os.Getpid(); err == nil; stat, err = proc.ReadStat(stat.Parent) {
		if stat.Parent <= 1 || stat.Parent == self {
			s.Lineage = append(s.Lineage, session)
			break
		}
		s.Lineage = append(s.Lineage, stat.Parent)
	}
	return s
}

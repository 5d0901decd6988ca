package supervisor

import (
	"errors"
	"strings"
	"time"

	"example.org/supervisord/supervisor/program"
)

// Usage is what a worker uses: its process and the rest of its process group. The supervisor does not know it; the code that shows a
// Status fills it in. What is unknown is nil.
type Usage struct {
	Began            *time.Time `json:"began"`
	Processes        *int       `json:"processes"`
	CPUPercent       *float64   `json:"cpu_percent"` // of one CPU, since the last measurement if that is less than a minute ago, else since Began
	Memory           *int64     `json:"memory"`      // resident, in bytes; shared pages count for each process
	Connections      *int       `json:"connections"` // open, of those accepted from the program's listeners, descendants included
	ConnectionsError string     `json:"connections_error,omitempty"`
}

// AcceptQueue is how many connections wait to be accepted, and how many can, over all sockets of a listener.
type AcceptQueue struct {
	Waiting int `json:"waiting"`
	Limit   int `json:"limit"`

	// Stuck is how long one of them has waited, if that is for seconds and new connections are not paused: nobody accepts.
	Stuck time.Duration `json:"stuck_ns,omitempty"`
}

// Addresses returns where a program listens, as the kernel says.
func (p *ProgramStatus) Addresses() []string {
	var list []string
	for _, l := range p.Listeners {
		list = append(list, l.Address)
	}
	return list
}

// PIDs returns the processes of a generation's workers.
func (g *GenerationStatus) PIDs() []int {
	var list []int
	for _, w := range g.Workers {
		if w.PID > 0 {
			list = append(list, w.PID)
		}
	}
	return list
}

// Ready says why supervisord should get no requests: it is stopping, or some programs do not serve; nil: it should.
func (st *Status) Ready() error {
	if st.Stopping {
		return errors.New("supervisord is stopping")
	}
	var missing []string
	for _, p := range st.Programs {
		if !p.Serves() {
			missing = append(missing, p.Summary)
		}
	}
	if len(missing) > 0 {
		return errors.New("not every program serves: " + strings.Join(missing, "; "))
	}
	return nil
}

// Serves reports whether a worker of the program answers: one that is ready and was not told to stop.
func (p *ProgramStatus) Serves() bool {
	for _, g := range p.Generations {
		for _, w := range g.Workers {
			if w.State == program.Leaving || g.Role == program.RoleServing && (w.State == program.Ready || w.State == program.Soaking) {
				return true
			}
		}
	}
	return false
}

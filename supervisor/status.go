package supervisor

import (
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor/program"
)

// Status is the state of everything, as plain data: a copy that belongs to the caller, who may read it on any
// goroutine.
type Status struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"` // this image
	Version string    `json:"version"`
	Host    string    `json:"host"`   // the name of the machine
	Config  string    `json:"config"` // the file
	// the same over upgrades, and over deaths after which the next one continues
	Instance string          `json:"instance"`
	Stopping bool            `json:"stopping"`
	Upgrade  string          `json:"upgrade_failed,omitempty"` // why the last upgrade did not happen, or was undone
	Programs []ProgramStatus `json:"programs"`
}

// ProgramStatus is one program.
type ProgramStatus struct {
	Name    string        `json:"name"`
	State   program.State `json:"state"`
	Summary string        `json:"summary"`
	// the trial, the serving one, then the draining ones, oldest first
	Generations []GenerationStatus `json:"generations"`
	Listeners   []ListenerStatus   `json:"listeners"`
	Newest      int                `json:"newest_generation"` // the number that was given last
	Failures    int                `json:"failures"`          // first starts that failed in a row
	// workers that ended unexpectedly and were replaced since the serving generation began
	Restarts int       `json:"restarts"`
	RetryAt  time.Time `json:"retry_at,omitzero"` // when a worker or the program is started next
	Awaiting
	// the newest number that was promised: of the reload that waits, if one does
	Awaited int `json:"awaited_generation"`
	History
	// of output that could not be written to the log files
	Lost   uint64             `json:"lost_lines,omitempty"`
	Paused *program.PauseTime `json:"paused,omitempty"` // new connections wait in the kernel
}

// Awaiting is what a program waits for.
type Awaiting struct {
	// processes of a supervisord that died, which continue until the program serves
	Orphans []int      `json:"orphans,omitempty"`
	Awaits  []string   `json:"awaits,omitempty"` // the programs that must serve before it starts
	Due     *DueReload `json:"due,omitempty"`    // a reload that was asked for and has not begun
}

// History is what has happened to a program.
type History struct {
	LastCrash *program.Crash         `json:"last_crash,omitempty"` // nil: none is known
	Reloads   []program.ReloadRecord `json:"reloads"`              // the last ones, oldest first; all that have not ended
	// the reloads before, oldest first; for readers only
	Past []*program.ReloadRecord `json:"-"`
	Stop *program.StopRecord     `json:"stop,omitempty"` // the last one
}

// Known returns the reloads that are remembered, oldest first.
func (h *History) Known() []program.ReloadRecord {
	var all []program.ReloadRecord
	for _, r := range h.Past {
		all = append(all, *r)
	}
	return append(all, h.Reloads...)
}

// DueReload is a reload that waits. Its generation will have the next number.
type DueReload struct {
	Reason  string    `json:"reason"`             // what asked for it
	AskedBy string    `json:"asked_by,omitempty"` // who
	Waits   string    `json:"waits_for"`          // for people
	At      time.Time `json:"at,omitzero"`        // not before then
}

// GenerationStatus is one generation.
type GenerationStatus struct {
	Number   int           `json:"number"`
	Role     program.Role  `json:"role"`
	Reason   string        `json:"reason"`
	AskedBy  string        `json:"asked_by,omitempty"`  // who asked for it
	Held     bool          `json:"held"`                // a canary that waits
	HeldTill time.Time     `json:"held_until,omitzero"` // when it is promoted by itself; not there: only a person decides
	Share    int           `json:"share,omitempty"`     // of new connections, in parts of 10,000
	KeptTill time.Time     `json:"kept_until,omitzero"` // until when a rollback can bring it back
	InHand   *program.Look `json:"in_hand,omitempty"`   // the connections of a generation that gets no new ones
	Slots    int           `json:"slots"`
	program.GenerationTimes

	// where its workers are started, symlinks resolved; not there: not known yet
	Directory string         `json:"directory,omitempty"`
	Config    string         `json:"config,omitempty"` // identifies its configuration
	Workers   []WorkerStatus `json:"workers"`
}

// WorkerStatus is one worker process.
type WorkerStatus struct {
	program.Standing
	Text string `json:"text,omitempty"` // its own STATUS=
	Seen string `json:"seen,omitempty"` // why it is not ready, as far as it can be seen
	// what the process with PID, which has ended, has left of a stopping worker: "node (PID 13)"
	Left string `json:"left,omitempty"`
	Usage
}

// ListenerStatus is one listener of the newest configuration.
type ListenerStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"` // as the kernel says
	// of the supervisor: one for each slot where there are several, and those that only old generations have
	FDs []int `json:"fds"`

	WhenDown string `json:"when_down"` // what becomes of clients while nothing serves: "queue", "refuse", "queue 30s"
	Closed   bool   `json:"closed"`    // they are refused now

	// "steer": each generation has sockets of its own; "share": all accept from the same
	Handover string              `json:"handover"`
	Why      string              `json:"handover_why,omitempty"` // why it is "share" although nobody asked for that
	Lanes    []socket.LaneStatus `json:"lanes,omitempty"`        // of "steer": the sockets of each generation

	PerSlot    string `json:"per_slot"`               // "auto", "true" or "false"
	PerSlotWhy string `json:"per_slot_why,omitempty"` // why "auto" means one socket for many workers

	Queue *AcceptQueue `json:"queue"` // nil: not known; see Usage
	Path  *PathStatus  `json:"path,omitempty"`

	// how often a process has called shutdown(2) on a socket, since this image began
	ShutDowns int `json:"shut_downs,omitempty"`
}

// PathStatus is what has happened to the path of a unix socket; not there: nothing.
type PathStatus struct {
	Restored int       `json:"restored"`          // how often supervisord has put it back
	Last     time.Time `json:"last,omitzero"`     // when it did so last
	Damage   string    `json:"damage,omitempty"`  // what was wrong then, and who is suspected
	Problem  string    `json:"problem,omitempty"` // why clients do not find the socket now; "": they do
}

// Times is Restored; 0 for nil.
func (p *PathStatus) Times() int {
	if p == nil {
		return 0
	}
	return p.Restored
}

// Describe is Status before Run, and for the loop.
func (s *Supervisor) Describe() *Status {
	s.followClock()
	st := &Status{
		PID: os.Getpid(), Started: s.began, Version: s.Version, Host: hostName(), Config: s.Path, Instance: s.instance,
		Stopping: s.stopping(),
		Upgrade:  s.departure.failed, Programs: []ProgramStatus{},
	}
	for p := range s.programs.all() {
		st.Programs = append(st.Programs, p.status())
	}
	return st
}

// Program returns the status of a program, or nil.
func (st *Status) Program(name string) *ProgramStatus {
	for i := range st.Programs {
		if st.Programs[i].Name == name {
			return &st.Programs[i]
		}
	}
	return nil
}

// Only returns st without all other programs. Errors: ErrNoProgram (wrapped).
func (st *Status) Only(name string) (*Status, error) {
	p := st.Program(name)
	if p == nil {
		var names []string
		for _, p := range st.Programs {
			names = append(names, p.Name)
		}
		return nil, noProgram(name, names)
	}
	only := *st
	only.Programs = []ProgramStatus{*p}
	return &only, nil
}

// recentReloads is how many reloads a status has, if all before have ended.
const recentReloads = 20

// status copies what is going on in one program: the answer is read on other goroutines. Configurations and records of
// reloads are shared, because they are only ever replaced.
func (p *runner) status() ProgramStatus {
	now := time.Now()
	st := ProgramStatus{
		Name: p.core.Name, State: p.core.State(), Summary: p.summary(), Generations: []GenerationStatus{},
		Listeners: []ListenerStatus{},
		Newest:    p.core.LastGeneration, Awaited: p.core.Awaited(), Failures: p.core.Failures,
		Restarts: p.core.Restarts, RetryAt: p.core.RetryTime(now),
		Awaiting: Awaiting{Orphans: p.s.Orphans.Of(p.core.Name)},
		History:  p.history(),
		Lost:     p.capture.errors.Lost(),
	}
	if p.core.AwaitsOthers() {
		st.Awaits = p.core.Awaits
	}
	if waits := p.core.Waits(now); waits != "" {
		r := p.core.Again
		st.Due = &DueReload{Reason: r.Reason, AskedBy: r.AskedBy, Waits: waits}
		if p.core.AgainAt.After(now) {
			st.Due.At = p.core.AgainAt
		}
	}
	for _, g := range p.core.Generations() {
		st.Generations = append(st.Generations, p.generationStatus(g))
	}
	if pause := p.core.Paused; !pause.Until.IsZero() {
		st.Paused = &pause
	}
	for _, l := range p.listeners {
		st.Listeners = append(st.Listeners, p.listenerStatus(l))
	}
	return st
}

func (p *runner) history() History {
	h := History{LastCrash: p.core.LastCrash.Copy(), Reloads: []program.ReloadRecord{}}
	for i, r := range p.core.Reloads {
		if i < len(p.core.Reloads)-recentReloads && len(h.Reloads) == 0 && !r.Ended.IsZero() {
			h.Past = append(h.Past, r)
			continue
		}
		h.Reloads = append(h.Reloads, *r)
	}
	if p.core.LastStop != nil {
		stop := *p.core.LastStop
		h.Stop = &stop
	}
	return h
}

func (p *runner) listenerStatus(l socket.Resolved) ListenerStatus {
	table, key := p.s.table, l.Key()
	st := ListenerStatus{Name: l.Name, Address: table.Address(key), FDs: table.FDs(key), WhenDown: l.WhenDown.String(),
		Closed:   table.Closed(key),
		Handover: string(l.Handover), Lanes: table.Lanes(key), PerSlot: l.Slotting(), PerSlotWhy: p.oneSocket(l),
		Path: p.s.pathStatus(l), ShutDowns: table.ShutDowns(key)}
	if why, unasked := table.WhyShared(l); why != "" {
		st.Handover, st.Lanes = string(socket.Share), nil
		if unasked {
			st.Why = why
		}
	}
	for i := range st.Lanes {
		for number, g := range p.generations {
			if slices.Contains(g.lanes, st.Lanes[i].Lane) {
				st.Lanes[i].Generation = number
			}
		}
	}
	return st
}

func (p *runner) generationStatus(g *program.Generation) GenerationStatus {
	st := GenerationStatus{
		Number: g.Number, Role: p.core.Role(g), Reason: g.Reason, AskedBy: g.AskedBy, Held: g.Held && g.IsCanary(),
		HeldTill: g.HeldTill, Share: p.share(g.Number), KeptTill: p.core.KeptTill(g), InHand: g.InHand(),
		Slots: len(g.Slots), GenerationTimes: g.GenerationTimes, Config: g.Config.Fingerprint(), Workers: []WorkerStatus{},
	}
	if r := p.generations[g.Number]; r != nil && r.snapshot != nil {
		st.Directory = string(r.snapshot.Directory)
	}
	for _, w := range g.Workers {
		ws := WorkerStatus{Standing: w.Standing}
		if h := p.workers[w.Number]; h != nil {
			ws.Text, ws.Left = h.text, h.left
			if w.State == program.Starting {
				ws.Seen = h.Seen()
			}
		}
		st.Workers = append(st.Workers, ws)
	}
	return st
}

// hostName returns the name of the machine, or "".
func hostName() string {
	name, _ := os.Hostname()
	return name
}

// FindReload looks for the record of the reload with this number. Where there is none yet it returns one that is
// pending, if the program will give the number away next, and nil if it never will, or has forgotten.
func (st *ProgramStatus) FindReload(generation int) *program.ReloadRecord {
	i := slices.IndexFunc(st.Reloads, func(r program.ReloadRecord) bool { return r.Generation == generation })
	switch {
	case i >= 0:
		return &st.Reloads[i]
	case generation == st.Awaited && generation > st.Newest:
		return &program.ReloadRecord{Generation: generation, Outcome: program.Pending}
	}
	return nil
}

// Usage is what a worker uses: its process and the rest of its process group. The supervisor does not know it; the code
// that shows a Status fills it in. What is unknown is nil.
type Usage struct {
	Began     *time.Time `json:"began"`
	Processes *int       `json:"processes"`
	// of one CPU, since the last measurement if that is less than a minute ago, else since Began
	CPUPercent *float64 `json:"cpu_percent"`
	Memory     *int64   `json:"memory"` // resident, in bytes; shared pages count for each process
	// open, of those accepted from the program's listeners, descendants included
	Connections      *int   `json:"connections"`
	ConnectionsError string `json:"connections_error,omitempty"`
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
			if w.State == program.Leaving ||
				g.Role == program.RoleServing && (w.State == program.Ready || w.State == program.Soaking) {
				return true
			}
		}
	}
	return false
}

package snapshot

import (
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/bind"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

// Seat is what differs from worker to worker in a generation.
type Seat struct {
	Generation int
	Slot       int
	Sockets    []dialect.Passed // by listener, without FD
	FDs        []int            // of the sockets here
	Binds      []bind.Claim     // by listener
	Lane       string           // what its connection IDs of QUIC name; "": it has no such listener
}

// Worker returns what the worker in a seat is started with. The descriptors in the Spec stay the socket table's: the
// launcher duplicates them into the process.
func (s *Snapshot) Worker(c *config.Program, seat Seat) worker.Spec {
	spec := s.process(c)
	numbers := dialect.FDNumbers(c.Listen)
	for i := range seat.Sockets {
		seat.Sockets[i].FD = numbers[i]
		spec.Listeners = append(spec.Listeners, seat.Sockets[i].Name)
	}
	own := fdPlaceholders(c, "{generation}", strconv.Itoa(seat.Generation), "{slot}", strconv.Itoa(seat.Slot))
	spec.Command = s.words(c, own, c.Command)
	spec.Sockets, spec.Places = seat.FDs, numbers
	spec.Unbound = s.Unbound
	if s.Bind {
		spec.Binds = seat.Binds
		spec.Limits.NoNewPrivileges = spec.Limits.NoNewPrivileges || !bind.Privileged()
	}
	spec.Ready = s.Probe(c, seat, c.Ready.Check)
	spec.Watchdog = c.Health.Watchdog
	told := dialect.Message{Dialects: c.Dialects, Sockets: seat.Sockets, Generation: seat.Generation}
	spec.Told = told.Environment()
	spec.Environment = append(slices.Clone(spec.Environment),
		"SUPERVISORD_PROGRAM="+c.Name,
		"SUPERVISORD_SLOT="+strconv.Itoa(seat.Slot),
		"SUPERVISORD_GENERATION="+strconv.Itoa(seat.Generation),
	)
	if seat.Lane != "" {
		spec.Environment = append(spec.Environment, "SUPERVISORD_LANE="+seat.Lane,
			"SUPERVISORD_LANE_BYTE="+strconv.Itoa(socket.LaneByte))
	}
	return spec
}

// Preflight returns what the preflight of a generation is run with.
func (s *Snapshot) Preflight(c *config.Program) worker.Spec {
	spec := s.process(c)
	spec.Command = s.words(c, fdPlaceholders(c), c.Reload.Preflight)
	return spec
}

// Command returns what a command that belongs to the program, such as a hook, is run with: directory, environment, user
// and limits as of a worker, no Command, and no output.
func (s *Snapshot) Command(c *config.Program) *worker.Spec {
	spec := s.process(c)
	spec.Stdout, spec.Stderr = output.Destination{Kind: output.Null}, output.Destination{Kind: output.Null}
	return &spec
}

// process is what every process of the generation has in common.
func (s *Snapshot) process(c *config.Program) worker.Spec {
	return worker.Spec{
		Execution: spawn.Execution{Directory: string(s.Directory), Environment: s.Environment, Credential: s.Credential,
			Limits: c.Limits}, Stdout: s.Stdout, Stderr: s.Stderr,
	}
}

// Probe fills in the placeholders of a probe that are known before the spawn; {pid} is left to package worker.
func (s *Snapshot) Probe(c *config.Program, seat Seat, r ready.Check) ready.Check {
	fill := strings.NewReplacer("{slot}", strconv.Itoa(seat.Slot), "{generation}", strconv.Itoa(seat.Generation))
	r.URL = fillIn(fill, r.URL)
	r.Address = fillIn(fill, r.Address)
	r.Command = s.words(c, fill, r.Command)
	return r
}

// fdPlaceholders fills in {fd:NAME}, and these pairs of a placeholder and its value.
func fdPlaceholders(c *config.Program, pairs ...string) *strings.Replacer {
	for i, number := range dialect.FDNumbers(c.Listen) {
		pairs = append(pairs, "{fd:"+c.Listen[i].Name+"}", strconv.Itoa(number))
	}
	return strings.NewReplacer(pairs...)
}

// words returns the words of a command, filled in, with the paths below the directory in the release of this
// generation.
func (s *Snapshot) words(c *config.Program, r *strings.Replacer, words []string) []string {
	filled := make([]string, len(words))
	for i, w := range words {
		filled[i], _ = c.InRelease(fillIn(r, w), string(s.Directory))
	}
	return filled
}

// fillIn replaces the placeholders in a text. Most texts have none, and a Replacer that is never used costs next to
// nothing.
func fillIn(r *strings.Replacer, text string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	return r.Replace(text)
}

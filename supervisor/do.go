package supervisor

import (
	"context"
	"syscall"
	"time"

	"example.org/supervisord/supervisor/program"
)

// Request is what Do answers. Do and its requests go as soon as nobody calls Do: call the methods in requests.go.
type Request interface{ request() }

type (
	ReloadRequest struct {
		Programs []string
		Reason   string
		AskedBy  string
		Canary   int
		For      time.Duration
	}
	ProgramRequest struct {
		Program string
		Event   program.Event
		AskedBy string
	}
	SignalRequest struct {
		Program    string
		Generation int
		Signal     syscall.Signal
		AskedBy    string
	}
	LevelRequest    struct{ Level, AskedBy string }
	StatusRequest   struct{}
	FollowRequest   struct{}
	UnfollowRequest struct{ Updates <-chan *Update }
	UpgradeRequest  struct{ AskedBy string }
	SwitchRequest   struct{}
	LogsRequest     struct{ Program string }
	CommandRequest  struct {
		Program    string
		Generation int
	}
)

func (ReloadRequest) request()   {}
func (ProgramRequest) request()  {}
func (SignalRequest) request()   {}
func (LevelRequest) request()    {}
func (StatusRequest) request()   {}
func (FollowRequest) request()   {}
func (UnfollowRequest) request() {}
func (UpgradeRequest) request()  {}
func (SwitchRequest) request()   {}
func (LogsRequest) request()     {}
func (CommandRequest) request()  {}

// Do answers a request.
func (s *Supervisor) Do(ctx context.Context, r Request) (any, error) {
	switch r := r.(type) {
	case ReloadRequest:
		return s.Reload(ctx, ReloadOptions(r))
	case ProgramRequest:
		switch e := r.Event.(type) {
		case program.Start:
			e.AskedBy = r.AskedBy
			r.Event = e
		case program.Stop:
			e.AskedBy = r.AskedBy
			r.Event = e
		case program.Scale:
			e.AskedBy = r.AskedBy
			r.Event = e
		case program.Promote:
			e.AskedBy = r.AskedBy
			r.Event = e
		case program.Abort:
			e.AskedBy = r.AskedBy
			r.Event = e
		}
		return s.Act(ctx, r.Program, r.Event)
	case SignalRequest:
		return nil, s.Signal(ctx, SignalOptions(r))
	case LevelRequest:
		return nil, s.SetLevel(ctx, r.Level, r.AskedBy)
	case FollowRequest:
		return s.Subscribe(ctx)
	case UnfollowRequest:
		s.Unsubscribe(r.Updates)
		return nil, nil
	case UpgradeRequest:
		return nil, s.Upgrade(ctx, r.AskedBy)
	case SwitchRequest:
		return nil, s.Switch(ctx)
	case LogsRequest:
		return s.Logs(ctx, r.Program)
	case CommandRequest:
		return s.HookCommand(ctx, r.Program, r.Generation)
	}
	return s.Status(ctx)
}

// Follow is SubscribeFirst.
func (s *Supervisor) Follow() <-chan *Update { return s.SubscribeFirst() }

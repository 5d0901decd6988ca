package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/spawn"
)

// Upgrader says how this process is executed again.
type Upgrader interface {
	// Check is the command that checks the new binary: it must Rehearse with record.CheckFD, and read the configuration.
	Check() []string
	// Image is the new binary and what it gets.
	Image() record.Image
	// Finish answers the requests that clients have made, and accepts no more; it returns when ctx ends at the latest.
	// Any goroutine may call it. Requests that come later wait for the new image, or until Resume.
	Finish(ctx context.Context)
	Resume()
}

// ErrLeft is what Run returns when supervisord was told to leave its workers to the next one. The process must end
// then: nothing reads from the workers or reaps them any more.
var ErrLeft = errors.New("the workers are left to the next supervisord")

// departure is how a supervisor hands over to the next one: by an upgrade in place, or by leaving its workers behind.
// It belongs to the loop, which continues to serve in every state but the last; only replaceImage and leave hold it up,
// for as long as the limits below say.
type departure struct {
	s      *Supervisor
	state  departureState
	reply  func(error) // to the client that asked for the upgrade; nil: it was USR2
	timer  *time.Timer // until when systemd is waited for
	failed string      // why the last upgrade failed; "": it did not
}

// departureState is one of
//
//	staying   → checking   by USR2 or Upgrade
//	checking  → settling   when the new binary has passed its check; → staying when it has not
//	settling  → answering  when systemd has read what waits, or its time is over
//	answering → staying    when clients have their answers, or their time is over, and the execve has failed
//	every one → leaving    by RTMIN+1
//	leaving   → left       when systemd has read what waits, or its time is over
//
// While supervisord stops, nothing begins, and what had begun goes back to staying.
type departureState int

const (
	staying departureState = iota
	checking
	settling
	answering
	leaving
	left
)

// Limits of a departure.
const (
	checkTimeout      = 30 * time.Second
	settleTimeout     = 5 * time.Second  // what systemd has not read by then, the new image sends
	finishTimeout     = 2 * time.Second  // a client without an answer by then has to ask the new image
	leaveTimeout      = 60 * time.Second // what systemd has not read by then, the next supervisord does not get
	freezeTimeout     = 2 * time.Second  // for what the launcher is doing; the loop waits, too
	lastSettleTimeout = 2 * time.Second  // likewise, for what was found after the last look
)

// enter changes the state.
func (d *departure) enter(state departureState) {
	d.state = state
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// answer replies to the client that waits, if there is one.
func (d *departure) answer(err error) {
	if d.reply != nil {
		d.reply(err)
		d.reply = nil
	}
}

// goOn continues with a departure that waits for systemd, if systemd has read everything.
func (d *departure) goOn() {
	if d.s.store.Busy() {
		return
	}
	switch d.state {
	case settling:
		d.settled()
	case leaving:
		d.leave(nil)
	case staying, checking, answering, left:
	}
}

// upgrade checks the new binary in a child process, with the record as it is now, while the loop continues. With reply
// it answers an Upgrade, otherwise USR2.
func (d *departure) upgrade(reply func(error), by string) {
	if err := d.mayUpgrade(); err != nil {
		if reply == nil {
			d.s.Log.Warn("USR2 is ignored", zap.Error(err))
			return
		}
		reply(err)
		return
	}
	d.s.Log.Info("upgrade: checking the new binary", askedBy(by), zap.Strings("command", d.s.Upgrader.Check()))
	d.enter(checking)
	d.reply, d.failed = reply, ""
	r, err := record.Rehearse(recordSource{d.s})
	if err != nil {
		d.checked(err)
		return
	}
	ctx, launcher, command := d.s.ctx, d.s.Launcher, d.s.Upgrader.Check()
	d.s.later(func() func() {
		defer r.Close()
		err := check(ctx, launcher, command, r)
		return func() { d.checked(err) }
	})
}

// mayUpgrade returns why no upgrade may begin now; nil: one may.
func (d *departure) mayUpgrade() error {
	switch {
	case d.s.stopping(), d.state == leaving, d.state == left:
		return ErrStopping
	case d.s.Upgrader == nil:
		return fmt.Errorf("%w: this supervisord cannot be upgraded", ErrState)
	case d.state == checking, d.state == settling, d.state == answering:
		return fmt.Errorf("%w: an upgrade is under way", ErrState)
	}
	return nil
}

// check runs the command that checks the new binary, on a goroutine of its own.
func check(ctx context.Context, launcher ProcessLauncher, command []string, r *record.Rehearsal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("not finished within %s", checkTimeout))
	defer cancel()
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	return launcher.Run(ctx, worker.Spec{
		Execution: spawn.Execution{Command: command, Directory: dir,
			Environment: worker.Inheritable(os.Environ())}, Sockets: r.Descriptors(),
		Stdout: output.Destination{Kind: output.Null}, Stderr: output.Destination{Kind: output.Null},
	})
}

// checked continues with the upgrade when the check has ended. If the new image dies at once, the supervisord after it
// has only the contents of systemd's store; so checked gives systemd time to read what waits.
func (d *departure) checked(err error) {
	switch {
	case d.state != checking:
		return // it leaves
	case d.s.stopping():
		d.enter(staying)
		d.answer(ErrStopping)
	case err != nil:
		d.enter(staying)
		d.answer(d.stumble(err))
	default:
		d.enter(settling)
		d.timer = d.s.after(settleTimeout, d.settled)
		d.goOn()
	}
}

// settled tells the client that asked for the upgrade that the new binary takes over, and lets every client have its
// answer first: when a connection breaks, the client cannot know whether its request was carried out.
func (d *departure) settled() {
	if d.state != settling {
		return
	}
	if d.s.stopping() {
		d.enter(staying)
		d.answer(ErrStopping)
		return
	}
	d.enter(answering)
	d.answer(nil)
	ctx, upgrader := d.s.ctx, d.s.Upgrader
	d.s.later(func() func() {
		ctx, cancel := context.WithTimeout(ctx, finishTimeout)
		defer cancel()
		upgrader.Finish(ctx)
		return d.finished
	})
}

// finished executes the new binary. It returns if that failed, or if the upgrade is not wanted any more.
func (d *departure) finished() {
	if d.state == answering {
		d.enter(staying)
		if !d.s.stopping() {
			d.stumble(d.replaceImage()) //nolint:errcheck // it was logged
		}
	}
	d.s.Upgrader.Resume()
}

// stumble ends an upgrade that has failed.
func (d *departure) stumble(err error) error {
	d.failed = err.Error()
	d.s.Log.Error(ErrUpgrade.Error(), zap.Error(err))
	return fmt.Errorf("%w: %w", ErrUpgrade, err)
}

// replaceImage executes the new binary in this process (execve keeps the PID, the children and the listed descriptors).
// Output and ends of workers wait in the kernel meanwhile.
func (d *departure) replaceImage() error {
	image := d.s.Upgrader.Image()
	d.s.Log.Info("executing the new binary", zap.String("path", image.Path))
	if err := d.s.Launcher.Freeze(freezeTimeout); err != nil {
		return err
	}
	defer d.s.Launcher.Thaw()
	if err := d.s.programs.restLogs(); err != nil {
		return err
	}
	if err := d.s.Log.Sync(); err != nil {
		return err
	}
	if err := record.AwaitDisks(d.s.files.Hung); err != nil {
		return err
	}
	return record.Execute(recordSource{d.s}, d.s.store, d.s.reader.pending(), image)
}

// askToLeave leaves the workers to the next supervisord as soon as systemd's store is complete. The loop continues
// until then.
func (d *departure) askToLeave(by string) {
	if d.s.stopping() || d.state == leaving {
		return
	}
	d.answer(ErrStopping)
	d.enter(leaving)
	if d.s.store != nil {
		d.s.Log.Info("leaving as soon as systemd has the descriptors of the workers", askedBy(by))
		d.timer = d.s.after(leaveTimeout, func() { d.leave(fmt.Errorf("not within %s", leaveTimeout)) })
	}
	d.goOn()
}

// leave ends the loop as a SIGKILL would, but between two events and with a complete record. late is why systemd's
// store is not complete; nil: it is.
func (d *departure) leave(late error) {
	if d.s.stopping() || d.state != leaving {
		return
	}
	if err := d.s.Launcher.Freeze(freezeTimeout); err != nil {
		d.s.Log.Error("messages of workers may be lost now", zap.Error(err))
	}
	d.s.store.All() // the workers say more while they are frozen
	d.s.keep()
	if late == nil {
		late = d.s.store.Settle(lastSettleTimeout)
	}
	if late != nil {
		d.s.Log.Error("leaving before systemd has every descriptor; the workers concerned end and the next supervisord "+
			"starts new ones", zap.Error(late))
	}
	if err := d.s.programs.restLogs(); err != nil {
		d.s.Log.Error("output of workers is lost", zap.Error(err))
	}
	d.s.Log.Info("leaving; the workers keep running for the next supervisord")
	d.enter(left)
}

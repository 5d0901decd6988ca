package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
)

// --watch draws after an event, but at most and at least this often: what the kernel knows of workers has no events.
const (
	watchAtMost  = time.Second
	watchAtLeast = 5 * time.Second
)

// liveStatus is a status that is kept current.
type liveStatus struct {
	client  *control.Client
	name    string // of the program; "": all
	view    statusView
	events  chan struct{}       // something has happened
	changed chan os.Signal      // what the terminal shows
	keys    <-chan terminal.Key // nil: none are read

	status *supervisor.Status // what is shown
	err    error              // instead
	top    int                // how many lines are scrolled away
}

// watchStatus draws the status, and again after each event, until somebody presses q. It continues when supervisord is
// upgraded, or dies and comes back.
func watchStatus(ctx context.Context, client *control.Client, name string, v statusView) error {
	w := &liveStatus{client: client, name: name, view: v, events: make(chan struct{}, 1), changed: make(chan os.Signal, 1)}
	ctx, end := w.readKeys(ctx)
	defer end()
	signal.Notify(w.changed, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(w.changed)
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { w.follow(ctx) })
	defer following.Wait()
	defer cancel()
	for {
		st, err := client.Status(ctx, name, true)
		if err != nil && (w.status == nil || ctx.Err() != nil || !control.Recoverable(err, true)) {
			return err
		}
		if w.err = err; err == nil {
			w.status = st
		}
		w.draw()
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

// readKeys reads keys where the display is a terminal: the reader of a pipe may end this process, and with it the way
// to put the terminal back.
func (w *liveStatus) readKeys(ctx context.Context) (context.Context, func()) {
	if !terminal.Is(os.Stdout) {
		return ctx, func() {}
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGQUIT)
	keys, end := terminal.Keys(os.Stdin)
	w.keys = keys
	return ctx, func() {
		end()
		stop()
	}
}

// follow notes that something has happened, until ctx ends.
func (w *liveStatus) follow(ctx context.Context) {
	for {
		err := w.client.Events(ctx, w.name, func(supervisor.Update) {
			select {
			case w.events <- struct{}{}:
			default:
			}
		})
		_, refused := errors.AsType[*control.APIError](err)
		if refused && !control.Recoverable(err, true) || control.Pause(ctx) != nil {
			return
		}
	}
}

// wait returns when it is time to ask again. Meanwhile keys scroll. It returns context.Canceled after q.
func (w *liveStatus) wait(ctx context.Context) error {
	soonest, latest := time.After(watchAtMost), time.After(watchAtLeast)
	var events chan struct{}
	for {
		select {
		case <-soonest:
			events = w.events
		case <-events:
			return nil
		case <-latest:
			return nil
		case <-w.changed:
			w.draw()
		case key := <-w.keys:
			if key == "q" {
				return context.Canceled
			}
			w.scroll(key)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// scroll moves the lines as less(1) does.
func (w *liveStatus) scroll(key terminal.Key) {
	_, rows := terminal.Size(os.Stdout)
	page := max(1, rows-4)
	switch key {
	case terminal.Up, "k":
		w.top--
	case terminal.Down, "j":
		w.top++
	case terminal.PageUp, "b":
		w.top -= page
	case terminal.PageDown, " ", "f":
		w.top += page
	case terminal.Home, "g":
		w.top = 0
	case terminal.End, "G":
		w.top = 1 << 30
	default:
		return
	}
	w.draw()
}

// draw draws the status so that it covers what was drawn before: on a terminal the lines that fit, between the head,
// which stays, and a line that says which they are.
func (w *liveStatus) draw() {
	fits, rows := terminal.Is(os.Stdout), 0
	if fits {
		w.view.width, rows = terminal.Size(os.Stdout)
	}
	var head, body []string
	if w.err != nil {
		body = strings.Split(w.err.Error(), "\n")
	} else {
		head, body = w.view.parts(w.status, time.Now())
	}
	lines := append(head, body...)
	if fits {
		room := max(1, rows-len(head)-2) // below are the last line and the cursor
		w.top = max(0, min(w.top, len(body)-room))
		shown := body[w.top:min(len(body), w.top+room)]
		lines = append(head[:min(len(head), max(0, rows-3))], shown...)
		lines = w.view.cut(append(lines, w.hint(len(shown), len(body))))
	}
	fmt.Print("\x1b[H\x1b[J" + strings.Join(lines, "\n") + "\n")
}

// hint says which lines are shown, and what keys do.
func (w *liveStatus) hint(shown, all int) string {
	switch {
	case shown == all && w.keys != nil:
		return "q leaves"
	case shown == all:
		return "Ctrl-C leaves"
	case w.keys != nil:
		return fmt.Sprintf("lines %d to %d of %d: arrows and space scroll, q leaves", w.top+1, w.top+shown, all)
	}
	return fmt.Sprintf("lines %d to %d of %d: Ctrl-C leaves", w.top+1, w.top+shown, all)
}

package main

import (
	"context"
	"sync"
	"time"
)

// user is one virtual user: it makes a call, and says what became of it.
type user interface {
	call(ctx context.Context) error
	close()
}

// users make calls one after the other until ended. A user whose call failed at once waits, so that it makes no more calls
// than one that is served.
type users struct {
	record
	length  time.Duration
	running sync.WaitGroup
	stop    context.CancelFunc
	all     []user
}

// begin lets the users begin spread over one call's length, so that at any moment calls of every age are in hand.
func begin(all []user, length time.Duration) *users {
	ctx, cancel := context.WithCancel(context.Background())
	u := &users{record: record{began: time.Now()}, length: length, stop: cancel, all: all}
	for i, one := range all {
		u.running.Go(func() {
			if pause(ctx, length*time.Duration(i)/time.Duration(len(all))) == nil {
				u.calls(ctx, one)
			}
		})
	}
	return u
}

func (u *users) calls(ctx context.Context, one user) {
	for ctx.Err() == nil {
		at := time.Now()
		call, cancel := context.WithTimeout(context.Background(), answerTimeout)
		err := one.call(call)
		cancel()
		took := time.Since(at)
		u.add(at, took, err)
		if err != nil && pause(ctx, u.length-took) != nil {
			return
		}
	}
}

// end waits for the calls that are in hand. Calling it again does nothing.
func (u *users) end() {
	u.stop()
	u.running.Wait()
	for _, one := range u.all {
		one.close()
	}
	u.all = nil
}

func (u *users) now() time.Duration { return time.Since(u.began) }

package attack

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestSlowRequestsAreAnsweredWhileAHUPComesEvery100Milliseconds(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, lab.Hello)
	m.Serves(1)
	at := m.Address()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var answered atomic.Int64
	for i := range 20 {
		clients.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := lab.Get(at, fmt.Sprintf("/slow?d=%dms", 2000+n*50%1000)); err != nil {
					t.Error(err)
				}
				answered.Add(1)
			}
		})
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 100 {
		<-tick.C
		m.Signal(syscall.SIGHUP)
	}
	close(stop)
	clients.Wait()
	t.Logf("%d requests were answered, %d generations served", answered.Load(), m.Count(lab.Says(lab.GenerationServes)))
	m.Never(lab.Says(lab.WorkerKilled))
	m.Await(lab.Says(lab.ReloadFull))
	if m.Count(lab.Says(lab.GenerationServes)) < 3 || answered.Load() < 40 {
		t.Error("too few requests or generations to show anything")
	}
}

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
)

// measureLeak reloads again and again, one reload after the other, and compares what the master holds.
func (b *bench) measureLeak(ctx context.Context) error {
	s, err := b.serveEverything(ctx, "2")
	if err != nil {
		return err
	}
	defer s.Abandon()
	for began := time.Now(); timeWait() > 500 && time.Since(began) < 65*time.Second; { // what others have left
		if err := kit.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
	const warm = 20 // then the runtime has its threads and its heap
	n := b.less(1000, 50)
	var v, active [3]vitals // before, in the middle, after: at rest, and when the last reload had just ended
	var took time.Duration
	for i, reloads := range []int{warm, n / 2, n / 2} {
		began := time.Now()
		for range reloads {
			if _, err := s.Replace(ctx); err != nil {
				return err
			}
		}
		took += time.Since(began)
		if active[i], err = vitalsOf(s.PID()); err != nil {
			return err
		}
		if err := kit.Pause(ctx, atRest); err != nil {
			return err
		}
		if v[i], err = settled(s.PID()); err != nil {
			return err
		}
		if i == 0 {
			took = 0
		}
	}
	b.require(fmt.Sprintf("descriptors of the master before, in the middle and after %d reloads", n), "the same",
		fmt.Sprintf("%d, %d, %d", v[0].fds, v[1].fds, v[2].fds), v[2].fds <= v[0].fds)
	b.require(fmt.Sprintf("its anonymous memory after 20 reloads, in the middle and after %d, metrics and page on", n),
		"≤ 8 MiB, no growth in the second half",
		fmt.Sprintf("%s, %s, %s at rest; PSS %s, %s, %s when a reload has just ended", mib(v[0].own), mib(v[1].own),
			mib(v[2].own),
			mib(active[0].pss), mib(active[1].pss), mib(active[2].pss)), v[2].own <= v[1].own+1<<20 && v[2].own <= 8<<20)
	b.show("its threads", fmt.Sprintf("%d, %d, %d", v[0].threads, v[1].threads, v[2].threads))
	each := func(d time.Duration) string { return load.Short(d / time.Duration(n)) }
	cpu, workers := v[2].cpu-v[0].cpu, v[2].workers-v[0].workers
	b.show("CPU of a reload with two workers",
		fmt.Sprintf("%s: the master %s, the workers from fork to exit %s (wall %s); %d sockets in TIME_WAIT",
			each(cpu+workers), each(cpu), each(workers), each(took), timeWait()))
	return nil
}

// timeWait returns how many closed connections this machine remembers: counting the open ones takes longer with many.
func timeWait() int {
	text, _ := os.ReadFile("/proc/net/sockstat")
	_, rest, _ := strings.Cut(string(text), " tw ")
	return number(rest)
}

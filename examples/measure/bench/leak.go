package main

import (
	"context"
	"fmt"
	"time"

	"example.org/supervisord/internal/lab/load"
)

// measureLeak reloads again and again, one reload after the other, and compares what the master holds.
func (b *bench) measureLeak(ctx context.Context) error {
	s, err := b.serve(ctx, b.light, "2", "")
	if err != nil {
		return err
	}
	defer s.Abandon()
	const warm = 20 // then the runtime has its threads and its heap
	n := b.less(1000, 50)
	var v [3]vitals // before, in the middle, after
	var began time.Time
	for i, reloads := range []int{warm, n / 2, n / 2} {
		for range reloads {
			if _, err := s.Replace(ctx); err != nil {
				return err
			}
		}
		if v[i], err = settled(s.PID()); err != nil {
			return err
		}
		if i == 0 {
			began = time.Now()
		}
	}
	took := time.Since(began)
	b.require(fmt.Sprintf("descriptors of the master before, in the middle and after %d reloads", n), "the same",
		fmt.Sprintf("%d, %d, %d", v[0].fds, v[1].fds, v[2].fds), v[2].fds <= v[0].fds)
	b.require("its memory", "no growth in the second half, ≤ 16 MiB", fmt.Sprintf("%s, %s, %s", mib(v[0].rss), mib(v[1].rss), mib(v[2].rss)),
		v[2].rss <= v[1].rss+1<<20 && v[2].rss <= 16<<20)
	b.show("its threads", fmt.Sprintf("%d, %d, %d", v[0].threads, v[1].threads, v[2].threads))
	b.show("its CPU per reload, two workers (wall)", fmt.Sprintf("%s (%s)", load.Short((v[2].cpu-v[0].cpu)/time.Duration(n)), load.Short(took/time.Duration(n))))
	return nil
}

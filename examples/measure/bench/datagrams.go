package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/socket"
)

// measureDatagrams compares how many datagrams a server sends back with each handover, and with one socket for all
// generations, in turn in one run.
func (b *bench) measureDatagrams(ctx context.Context) error {
	handovers := []socket.Handover{socket.Share, socket.Steer, socket.QUIC, socket.Flow}
	var subjects []*kit.Subject
	for _, h := range handovers {
		p := table(b.naive, "1", "", fmt.Sprintf("handover = %q", h))
		p.Command = append(p.Command, "-udp")
		p.Ready, p.Listen[0].Address = `method = "accept"`, "udp:"+kit.FreeAddress()
		s, err := b.side.Serve(ctx, p)
		if err != nil {
			return err
		}
		defer s.Abandon()
		subjects = append(subjects, s)
		if _, err := s.Replace(ctx); err != nil { // so that there are two lanes
			return err
		}
	}
	perSecond := make([][]float64, len(subjects))
	for range b.less(10, 3) {
		for i, s := range subjects {
			address := strings.TrimPrefix(s.Addresses[0], "udp:")
			dial := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "udp", address) }
			var r load.Collector
			l := load.New(r.Add)
			l.Loop(&load.Driver{Dial: dial, Ask: load.Echo}, 16, b.less(50_000, 5_000), nil)
			l.Wait()
			all := r.Attempts()
			if lost, _ := all.Lost(); lost > 0 {
				return fmt.Errorf("%d datagrams have no answer without a reload", lost)
			}
			perSecond[i] = append(perSecond[i], float64(len(all))/l.Now().Seconds())
		}
	}
	for _, all := range perSecond {
		slices.Sort(all)
	}
	middle := func(i int) float64 { return perSecond[i][len(perSecond[i])/2] }
	for i, h := range handovers[1:] {
		ratio, least := middle(i+1)/middle(0), 0.9
		if h == socket.Flow { // each new socket is a new flow
			least = 0.8
		}
		b.require(fmt.Sprintf(
			"datagrams that are sent back with `%s` : with `share`, a new socket each, 16 clients, in turn", h),
			fmt.Sprint("≥ ", least),
			fmt.Sprintf("%.2f (%.0f/s : %.0f/s, medians)", ratio, middle(i+1), middle(0)), ratio >= least)
	}
	return nil
}

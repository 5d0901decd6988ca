package main

import (
	"fmt"
	"slices"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// course is what a load at a constant rate came to.
type course struct {
	requests, failed int
	latency          spread
	gap              time.Duration // the longest without an answer
	first            string        // the first failure
}

func (c course) String() string {
	s := fmt.Sprintf("%s; longest gap %s; %d failed of %d", c.latency, short(c.gap), c.failed, c.requests)
	if c.first != "" {
		s += " (the first: " + c.first + ")"
	}
	return s
}

// steady asks at a constant rate, whatever the answers take, each time on a new connection: on a connection that was used
// before, net/http would send a lost request again and hide the loss.
func steady(url string, rate int, d time.Duration) course {
	attacker := vegeta.NewAttacker(vegeta.KeepAlive(false), vegeta.Timeout(answerTimeout), vegeta.Workers(100))
	target := vegeta.NewStaticTargeter(vegeta.Target{Method: "GET", URL: url})
	var c course
	var ends []int64
	for r := range attacker.Attack(target, vegeta.Rate{Freq: rate, Per: time.Second}, d, "") {
		c.requests++
		if r.Error != "" || r.Code != 200 {
			c.failed++
			if c.first == "" {
				c.first = fmt.Sprintf("%d %s", r.Code, r.Error)
			}
			continue
		}
		c.latency = append(c.latency, r.Latency)
		ends = append(ends, r.End().UnixNano())
	}
	slices.Sort(ends)
	for i := 1; i < len(ends); i++ {
		c.gap = max(c.gap, time.Duration(ends[i]-ends[i-1]))
	}
	return c
}

// measureLatency compares the same load without reloads, with a reload each second, and without again: what others do to the
// machine meanwhile shows in the difference between the first and the last.
func (b *bench) measureLatency() error {
	dir, err := b.folder()
	if err != nil {
		return err
	}
	m, err := b.startMaster(dir, b.helloProgram(), "")
	if err != nil {
		return err
	}
	defer m.abandon()
	if _, err := m.await(serves, 1); err != nil {
		return err
	}
	url, rate, d := "http://"+m.address+"/healthz", 500, time.Duration(b.less(20, 4))*time.Second
	before, err := vitalsOf(m.pid)
	if err != nil {
		return err
	}
	calm := steady(url, rate, d)
	after, err := vitalsOf(m.pid)
	if err != nil {
		return err
	}
	b.row(fmt.Sprintf("wake-ups of the master during %d requests without a reload", calm.requests), "0 per request",
		fmt.Sprint(after.switches-before.switches), verdictOf(after.switches-before.switches < uint64(calm.requests/100)))
	hups := m.reloadEvery(time.Second)
	busy := steady(url, rate, d)
	hups.end()
	again := steady(url, rate, d)
	what := fmt.Sprintf("latency at %d/s, new connections, p50 / p99 / max", rate)
	b.row(what+", no reload", "", calm.String(), verdictOf(calm.failed == 0))
	b.row(what+", a HUP each second", "0 failed", busy.String(), verdictOf(busy.failed == 0))
	b.row(what+", no reload, again", "", again.String(), verdictOf(again.failed == 0))
	base := append(slices.Clone(calm.latency), again.latency...)
	b.row("with reloads : without, p50, p99, max, gap", "", fmt.Sprintf("%s, %s, %s, %s", ratio(busy.latency.at(0.5), base.at(0.5)),
		ratio(busy.latency.at(0.99), base.at(0.99)), ratio(busy.latency.at(1), base.at(1)), ratio(busy.gap, max(calm.gap, again.gap))), nothing)
	_, err = m.stop()
	return err
}

package main

import "time"

// sizes is how much of everything a run does.
type sizes struct {
	name    string
	ab      abSize
	stopped stoppedSize
	latency latencySize
	ways    waysSize
	names   namesSize
	gaps    gapsSize
	compare compareSize
}

const auto = `"auto"`

var full = sizes{"full",
	abSize{requests: 100_000, clients: 1000, every: time.Second},
	stoppedSize{rpc: []int{300, 5000}, web: 100, call: time.Second, before: 3 * time.Second, redeploys: 10,
		between: 2 * time.Second},
	latencySize{rate: 1000, stretch: 10 * time.Second, pairs: 10},
	waysSize{rate: 500, length: 10 * time.Second},
	namesSize{rate: 200, redeploys: 5, slow: 2 * time.Second},
	gapsSize{rate: 500, pairs: 12, stretch: 2 * time.Second, workers: []string{"1", "2", "4", auto}},
	compareSize{users: 600, length: 10 * time.Second},
}

var quickly = sizes{"quick",
	abSize{requests: 10_000, clients: 200, every: time.Second},
	stoppedSize{rpc: []int{100, 500}, web: 50, call: time.Second, before: 2500 * time.Millisecond, redeploys: 2,
		between: time.Second},
	latencySize{rate: 500, stretch: 3 * time.Second, pairs: 1},
	waysSize{rate: 250, length: 3 * time.Second},
	namesSize{rate: 200, redeploys: 1, slow: 2 * time.Second},
	gapsSize{rate: 250, pairs: 2, stretch: time.Second, workers: []string{"1", "2", "4", auto}},
	compareSize{users: 100, length: 2 * time.Second},
}

// miniature is for the tests.
var miniature = sizes{"miniature",
	abSize{requests: 300, clients: 10, every: 100 * time.Millisecond},
	stoppedSize{rpc: []int{5}, web: 5, call: 100 * time.Millisecond, before: 300 * time.Millisecond, redeploys: 1,
		between: 100 * time.Millisecond},
	latencySize{rate: 100, stretch: 600 * time.Millisecond, pairs: 1},
	waysSize{rate: 50, length: 1700 * time.Millisecond},
	namesSize{rate: 100, redeploys: 1, slow: 300 * time.Millisecond},
	gapsSize{rate: 50, pairs: 1, stretch: 500 * time.Millisecond, workers: []string{"1", "2"}},
	compareSize{users: 5, length: 300 * time.Millisecond},
}

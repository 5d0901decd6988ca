package main

import "time"

// sizes is how much of everything a run does.
type sizes struct {
	name string

	abRequests, abClients int
	hups                  time.Duration // the pace of HUPs under ab

	users    []int         // virtual users of gRPC
	web      int           // of HTTP
	call     time.Duration // how long each of their calls takes
	before   time.Duration // how long the calls go on before the server is stopped, and after
	redeploy int           // how often supervisord redeploys under those calls
	between  time.Duration // two of these redeploys

	rate    int           // requests a second where the rate is constant
	stretch time.Duration // of time with, and as long without redeploys
	pairs   int           // of such stretches
	panel   time.Duration // of the picture that compares ways to redeploy
	names   int           // redeploys while names are slow
	slow    time.Duration // what the resolver takes

	gapPairs int
	gapLong  time.Duration
	workers  []string

	compared     int // users
	comparedLong time.Duration
}

var full = sizes{
	name: "full", abRequests: 100_000, abClients: 1000, hups: time.Second,
	users: []int{300, 5000}, web: 100, call: time.Second, before: 3 * time.Second, redeploy: 10, between: 2 * time.Second,
	rate: 1000, stretch: 10 * time.Second, pairs: 10, panel: 20 * time.Second, names: 5, slow: 2 * time.Second,
	gapPairs: 12, gapLong: 2 * time.Second, workers: []string{"1", "2", "4", `"auto"`},
	compared: 600, comparedLong: 10 * time.Second,
}

var quickly = sizes{
	name: "quick", abRequests: 10_000, abClients: 200, hups: time.Second,
	users: []int{100, 500}, web: 50, call: time.Second, before: 2500 * time.Millisecond, redeploy: 2, between: time.Second,
	rate: 500, stretch: 3 * time.Second, pairs: 1, panel: 3 * time.Second, names: 1, slow: 2 * time.Second,
	gapPairs: 2, gapLong: time.Second, workers: []string{"1", "2", "4", `"auto"`},
	compared: 100, comparedLong: 2 * time.Second,
}

// miniature is for the tests.
var miniature = sizes{
	name: "miniature", abRequests: 300, abClients: 10, hups: 100 * time.Millisecond,
	users: []int{5}, web: 5, call: 100 * time.Millisecond, before: 300 * time.Millisecond, redeploy: 1, between: 100 * time.Millisecond,
	rate: 100, stretch: 600 * time.Millisecond, pairs: 1, panel: 1700 * time.Millisecond, names: 1, slow: 300 * time.Millisecond,
	gapPairs: 1, gapLong: 500 * time.Millisecond, workers: []string{"1", "2"},
	compared: 5, comparedLong: 300 * time.Millisecond,
}

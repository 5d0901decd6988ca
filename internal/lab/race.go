//go:build race

package lab

// RaceEnabled reports whether the test binary has the race detector. Then the programs under test are built with it,
// too.
const RaceEnabled = true

//go:build race

package tests

// raceEnabled tells that the tests look for data races; then the programs under test are built to do so, too.
const raceEnabled = true

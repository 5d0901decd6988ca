//go:build race

package graceful_test

// The race detector makes everything several times slower.
const defaultRequests = 5_000

//go:build !race

package graceful_test

const defaultRequests = 20_000

//go:build !amd64 && !arm64

package worker

// waitCalls are not known of this machine.
var waitCalls map[int]waitCall

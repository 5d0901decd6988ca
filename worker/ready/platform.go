//go:build !linux || !(amd64 || arm64)

package ready

// A build for any other platform ends here. The method accept needs a table of system calls (waitcalls_GOARCH.go), and
// the system calls between fork and exec are those of 64-bit kernels.
var _ = supervisord_needs_linux_on_amd64_or_arm64

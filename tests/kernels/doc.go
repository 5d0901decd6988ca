// Package kernels runs tests on other kernels than this machine's, and on arm64: it boots Debian's kernels in an
// emulated machine, with a root of static test binaries and busybox, and shows each test in there as a subtest. The
// script machine fetches and boots them:
//
//	go test ./tests/kernels -v -long
//	go test ./tests/kernels -v -long -run TestKernels/bullseye-amd64
//
// The clock of the emulated machine counts its instructions (qemu's -icount) and skips the time in which it only waits.
// So nothing in there depends on how fast this machine is, and what else it does.
package kernels

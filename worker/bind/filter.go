package bind

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// machine is what one instruction set that this kernel runs calls the two system calls.
type machine struct {
	arch         uint32
	bind, listen uint32
	socketcall   uint32 // the call that i386 has for both, by its first argument; 0: none
	ignored      uint32 // bits of the number that say nothing about the call
}

// x32Bit marks the calls of x32, whose other numbers are those of x86-64.
const x32Bit = 0x40000000

// The first argument of socketcall(2), linux/net.h.
const (
	socketcallBind   = 2
	socketcallListen = 4
)

// machines are those of this kernel, the own one first.
func machines() []machine {
	if runtime.GOARCH == "arm64" {
		return []machine{{arch: unix.AUDIT_ARCH_AARCH64, bind: 200, listen: 201},
			{arch: unix.AUDIT_ARCH_ARM, bind: 282, listen: 284}}
	}
	return []machine{
		{arch: unix.AUDIT_ARCH_X86_64, bind: 49, listen: 50, ignored: x32Bit},
		{arch: unix.AUDIT_ARCH_I386, bind: 361, listen: 363, socketcall: 102},
	}
}

// The places in struct seccomp_data, seccomp(2).
const (
	dataNumber   = 0
	dataArch     = 4
	dataArgument = 16
)

// Filter returns the program that tells supervisord of bind(2) and listen(2), and allows everything else at once: the
// kernel remembers for which calls it does (Linux 5.11).
func Filter() (program []unix.SockFilter) {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	answer := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	unless := func(value uint32, skipped int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: uint8(skipped)}
	}
	notify, allow := answer(unix.SECCOMP_RET_USER_NOTIF), answer(unix.SECCOMP_RET_ALLOW)
	for _, m := range machines() {
		body := []unix.SockFilter{load(dataNumber)}
		if m.ignored != 0 {
			body = append(body, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: ^m.ignored})
		}
		body = append(body, unless(m.bind, 1), notify, unless(m.listen, 1), notify)
		if m.socketcall != 0 {
			body = append(body, unless(m.socketcall, 5), load(dataArgument), unless(socketcallBind, 1), notify,
				unless(socketcallListen, 1), notify)
		}
		body = append(body, allow)
		program = append(append(program, load(dataArch), unless(m.arch, len(body))), body...)
	}
	return append(program, allow)
}

// Call is a system call that the filter tells of.
type operation int

const (
	other operation = iota
	bindCall
	listenCall
	socketCall
)

// operationOf says what a call of an instruction set is.
func operationOf(arch uint32, number int32) operation {
	for _, m := range machines() {
		if m.arch != arch {
			continue
		}
		switch uint32(number) &^ m.ignored {
		case m.bind:
			return bindCall
		case m.listen:
			return listenCall
		case m.socketcall:
			return socketCall
		}
	}
	return other
}

#include "textflag.h"

DATA ·handlerAddress+0(SB)/8, $handler<>(SB)
GLOBL ·handlerAddress(SB), RODATA, $8

// void handler(int signal, siginfo_t *info, void *context): the kernel calls it and restores every register afterwards.
TEXT handler<>(SB), NOSPLIT|NOFRAME, $0
	LOCK
	INCL ·handling(SB)
	MOVL ·pipe(SB), DI
	MOVQ $128, DX // the size of a siginfo_t; info is in SI
	MOVL $1, AX   // write(2)
	SYSCALL
	LOCK
	DECL ·handling(SB)
	RET

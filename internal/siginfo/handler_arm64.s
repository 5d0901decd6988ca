#include "textflag.h"

DATA ·handlerAddress+0(SB)/8, $handler<>(SB)
GLOBL ·handlerAddress(SB), RODATA, $8

// void handler(int signal, siginfo_t *info, void *context): the kernel calls it and restores every register afterwards.
TEXT handler<>(SB), NOSPLIT|NOFRAME, $0
	MOVD $·handling(SB), R9
enter:
	LDAXRW (R9), R10
	ADDW $1, R10
	STLXRW R10, (R9), R11
	CBNZ R11, enter
	MOVWU ·pipe(SB), R0
	MOVD $128, R2 // the size of a siginfo_t; info is in R1
	MOVD $64, R8  // write(2)
	SVC
leave:
	LDAXRW (R9), R10
	SUBW $1, R10
	STLXRW R10, (R9), R11
	CBNZ R11, leave
	RET

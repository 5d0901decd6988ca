#include "textflag.h"

// func clones(number, a1, a2, a3, child uintptr) (result uintptr)
TEXT ·clones(SB), NOSPLIT|NOFRAME, $0-48
	MOVD number+0(FP), R8
	MOVD a1+8(FP), R0
	MOVD a2+16(FP), R1
	MOVD a3+24(FP), R2
	MOVD child+32(FP), R19 // system calls keep it
	MOVD $0, R3
	MOVD $0, R4
	SVC
	CBNZ R0, parent
	BL (R19) // on the child's own stack
	BRK
parent:
	MOVD R0, result+40(FP)
	RET

#include "textflag.h"

// func Write(a, b uintptr)
//
// The assembler does not know PREFETCHW. Processors without it take it for a NOP.
TEXT ·Write(SB), NOSPLIT, $0-16
	MOVQ a+0(FP), AX
	MOVQ b+8(FP), BX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX)
	BYTE $0x0F; BYTE $0x0D; BYTE $0x48; BYTE $0x40 // PREFETCHW 64(AX)
	BYTE $0x0F; BYTE $0x0D; BYTE $0x88; BYTE $0x80; BYTE $0; BYTE $0; BYTE $0 // PREFETCHW 128(AX)
	BYTE $0x0F; BYTE $0x0D; BYTE $0x0B // PREFETCHW (BX)
	BYTE $0x0F; BYTE $0x0D; BYTE $0x4B; BYTE $0x40 // PREFETCHW 64(BX)
	RET

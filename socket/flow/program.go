package flow

import (
	"encoding/binary"
	"unsafe"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// The key of a flow is the source and the destination address, of IPv4 in the first 8 of 32 bytes, and both ports.
const keySize = 36

// Where the program has what on its stack.
const (
	key   = -40
	ports = -8
	value = -4
)

const (
	startNetwork = 1  // BPF_HDR_START_NET: offsets from the IP header
	protocol     = 16 // the offset of protocol, in network order, in struct __sk_buff
	noExist      = 1  // BPF_NOEXIST
)

// granularity is how old seen may be before the program writes it, so that CPUs do not fight for its cache line.
const granularity = 10_000_000

// networkOrder is a number of 16 bits as a load of the machine sees it that has it in network order.
func networkOrder(n uint16) int32 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return int32(binary.NativeEndian.Uint16(b[:]))
}

// load copies part of the packet, from its IP header on, to the stack. It changes R0 to R5.
func load(offset asm.Instruction, to int16, length int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6),
		offset,
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, int32(to)),
		asm.Mov.Imm(asm.R4, length),
		asm.Mov.Imm(asm.R5, startNetwork),
		asm.FnSkbLoadBytesRelative.Call(),
	}
}

// word loads page[base + 4*index] into a register; index is masked, and lost.
func word(into, index asm.Register, memory int, base uintptr, mask int32) asm.Instructions {
	return asm.Instructions{
		asm.And.Imm(index, mask),
		asm.LSh.Imm(index, 2),
		asm.LoadMapValue(asm.R1, memory, uint32(base)),
		asm.Add.Reg(asm.R1, index),
		asm.LoadMem(into, asm.R1, 0, asm.Word),
	}
}

// look finds the flow of the key; R0 = 0: there is none.
func look(table int) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, table),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
	}
}

// instructions is the program. R6 has the packet, R8 the generation of its flow, R7 how a new flow is noted.
func instructions(table, memory int) asm.Instructions {
	var s page
	all := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	all = append(all, readKey()...)

	// The generation of the flow, if there is one and it lives.
	all = append(all, look(table)...)
	all = append(all,
		asm.Mov.Imm(asm.R7, noExist),
		asm.JEq.Imm(asm.R0, 0, "new"),
		asm.LoadMem(asm.R8, asm.R0, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.R8))
	all = append(all, word(asm.R3, asm.R2, memory, unsafe.Offsetof(s.live), Lanes-1)...)
	all = append(all,
		asm.JEq.Reg(asm.R3, asm.R8, "known"),
		asm.Mov.Imm(asm.R7, 0)) // BPF_ANY: instead of the one that is gone

	// A new flow. If another CPU has noted the same one meanwhile, that one is right.
	all = append(all, asm.FnGetPrandomU32.Call().WithSymbol("new"), asm.Mov.Reg(asm.R2, asm.R0))
	all = append(all, word(asm.R8, asm.R2, memory, unsafe.Offsetof(s.draw), parts-1)...)
	all = append(all,
		asm.StoreMem(asm.RFP, value, asm.R8, asm.Word),
		asm.LoadMapPtr(asm.R1, table),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, value),
		asm.Mov.Reg(asm.R4, asm.R7),
		asm.FnMapUpdateElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "known"))
	all = append(all, look(table)...)
	all = append(all,
		asm.JEq.Imm(asm.R0, 0, "known"),
		asm.LoadMem(asm.R8, asm.R0, 0, asm.Word))

	// When the lane was last used, and where its socket is.
	all = append(all,
		asm.FnKtimeGetCoarseNs.Call().WithSymbol("known"),
		asm.And.Imm(asm.R8, Lanes-1),
		asm.Mov.Reg(asm.R2, asm.R8),
		asm.LSh.Imm(asm.R2, 3),
		asm.LoadMapValue(asm.R1, memory, uint32(unsafe.Offsetof(s.seen))),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord),
		asm.Add.Imm(asm.R2, granularity),
		asm.JGT.Reg(asm.R2, asm.R0, "place"),
		asm.StoreMem(asm.R1, 0, asm.R0, asm.DWord))
	place := word(asm.R0, asm.R8, memory, unsafe.Offsetof(s.member), Lanes-1)
	place[0] = place[0].WithSymbol("place")
	return append(append(all, place...), asm.Return())
}

// readKey makes the key of the packet. What cannot be read of it stays 0.
func readKey() (all asm.Instructions) {
	all = append(all, asm.Mov.Imm(asm.R2, 0))
	for at := int16(key); at < 0; at += 8 {
		all = append(all, asm.StoreMem(asm.RFP, at, asm.R2, asm.DWord))
	}
	all = append(all,
		asm.LoadMem(asm.R2, asm.R6, protocol, asm.Word),
		asm.JEq.Imm(asm.R2, networkOrder(unix.ETH_P_IPV6), "ipv6"))
	all = append(all, load(asm.Mov.Imm(asm.R2, 0), value, 1)...) // version and header length
	all = append(all, load(asm.Mov.Imm(asm.R2, 12), key, 8)...)
	all = append(all,
		asm.LoadMem(asm.R7, asm.RFP, value, asm.Byte),
		asm.And.Imm(asm.R7, 0xf),
		asm.LSh.Imm(asm.R7, 2))
	all = append(all, load(asm.Mov.Reg(asm.R2, asm.R7), ports, 4)...)
	all = append(all, asm.Ja.Label("look"))
	six := load(asm.Mov.Imm(asm.R2, 8), key, 32)
	six[0] = six[0].WithSymbol("ipv6")
	all = append(all, six...)
	all = append(all, load(asm.Mov.Imm(asm.R2, 40), ports, 4)...)
	return append(all, asm.Mov.Imm(asm.R0, 0).WithSymbol("look"))
}

package config

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sizeUnits are the units of sizes. A size without a unit is in bytes.
var sizeUnits = map[string]uint64{
	"": 1, "B": 1,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// parseSize reads a size in bytes such as "512MiB".
func parseSize(s string) (uint64, error) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	unit, ok := sizeUnits[strings.TrimSpace(s[digits:])]
	n, err := strconv.ParseUint(s[:digits], 10, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is no size", s)
	}
	over, size := bits.Mul64(n, unit)
	if over != 0 || size > 1<<63-1 {
		return 0, fmt.Errorf("%q is too much", s)
	}
	return size, nil
}

// signal reads the name of a signal, with or without SIG, in letters of any size.
func (v value) signal(into *syscall.Signal) bool {
	if n, ok := v.raw.(int64); ok {
		v.problem(fmt.Sprintf("%d is a number", n), `write the name of the signal, such as "TERM"`)
		return false
	}
	var name string
	if !v.text(&name) {
		return false
	}
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	if sig == 0 {
		v.problem(fmt.Sprintf("%q is no signal", name), `write its name, such as "TERM", "QUIT" or "USR1"`)
		return false
	}
	*into = sig
	return true
}

// octal reads permission bits: "0660", or 0o660. A decimal number is refused, because 660 does not mean what it seems to.
func (v value) octal(into *uint32) bool {
	var n uint64
	switch raw := v.raw.(type) {
	case string:
		var err error
		if n, err = strconv.ParseUint(strings.TrimPrefix(raw, "0o"), 8, 32); err != nil {
			v.problem(fmt.Sprintf("%q is not an octal number", raw), `write it such as "0660"`)
			return false
		}
	case int64:
		if !v.in.places.at(v.path).octal && raw != 0 {
			v.problem(fmt.Sprintf("%d is a decimal number", raw), `write "%04d" or 0o%03d`, raw, raw)
			return false
		}
		n = uint64(raw)
	default:
		v.problem("is "+typeOf(v.raw)+", not an octal number", `write it such as "0660"`)
		return false
	}
	if n > 0o777 {
		v.problem(fmt.Sprintf("%#o is out of range", n), `write "0000" to "0777"`)
		return false
	}
	*into = uint32(n)
	return true
}

// Package terminal says what a file that a person may look at can show: whether it is a terminal, and how wide it is.
// It also tells when a key is pressed there.
package terminal

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Is reports whether a file is a terminal.
func Is(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// The size of a terminal that does not tell.
const (
	usualColumns = 80
	usualRows    = 24
)

// Size returns the size of a terminal, 80 by 24 if it is not known.
func Size(f *os.File) (columns, rows int) {
	columns, rows = usualColumns, usualRows
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return columns, rows
	}
	if size.Col > 1 {
		columns = int(size.Col)
	}
	if size.Row > 1 {
		rows = int(size.Row)
	}
	return columns, rows
}

// Width returns how wide a text to read should be: $COLUMNS, else the width of the terminal, else 80.
func Width(f *os.File) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 1 {
		return n
	}
	columns, _ := Size(f)
	return columns
}
